// Rows of tensors as floats, whatever their type and strides, and the tokens of a sequence.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/selective_scan/common/states.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::selective_scan::cpu {

using prim::element_at;
using prim::load_row;
using prim::padded;
using prim::store_row;
using prim::with_elements;

/// Elements `stride` apart, and zeros up to a whole register.
template <class Isa, class Tensor>
void gather_row(const Tensor& tensor, std::int64_t offset, std::int64_t stride, std::int64_t count,
                float* to) {
  if (stride == 1) return load_row<Isa>(tensor, offset, count, to);
  with_elements<Isa>(tensor, [&](const auto* elements) {
    for (std::int64_t at = 0; at < count; ++at) {
      to[at] = static_cast<float>(elements[offset + at * stride]);
    }
  });
  std::fill(to + count, to + padded<Isa>(count), 0.0f);
}

/// A sum becomes an element, if somebody wants it.
template <class Isa, class Tensor>
void store_sum(const Tensor& tensor, std::int64_t offset, double value) {
  if (tensor.data != nullptr) prim::store_element<Isa>(tensor, offset, static_cast<float>(value));
}

/// Element (entry, token, head, 0) of a tensor of tokens.
TESSERA_INLINE std::int64_t offset_at(const scan_tensor& tensor, std::int64_t entry,
                                      std::int64_t token, std::int64_t head) {
  return entry * tensor.entry + token * tensor.token + head * tensor.head;
}

/// Tokens [begin, end) of an entry.
struct token_range {
  std::int64_t entry = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

template <class Isa>
token_range tokens_of(const scan_sequences& sequences, std::int64_t sequence) {
  if (sequences.cu_seqlens == nullptr) return {sequence, 0, sequences.tokens};
  return {0, sequences.cu_seqlens[sequence], sequences.cu_seqlens[sequence + 1]};
}

/// Entry of a sequence in tensors of states, or `no_states`.
template <class Isa>
std::int64_t states_entry(const scan_sequences& sequences, std::int64_t sequence) {
  if (sequences.slots == nullptr) return sequence;
  const token_range tokens = tokens_of<Isa>(sequences, sequence);
  return selective_scan::states_entry<Isa>(sequences, sequence, tokens.end - tokens.begin);
}

/// Entries of tensors of tokens, and tokens of an entry that belong to some sequence.
template <class Isa>
std::int64_t entries_of(const scan_sequences& sequences) {
  return sequences.cu_seqlens != nullptr ? 1 : sequences.count;
}
template <class Isa>
std::int64_t used_tokens(const scan_sequences& sequences) {
  return sequences.cu_seqlens != nullptr ? sequences.cu_seqlens[sequences.count] : sequences.tokens;
}

/// Tokens behind the last packed sequence; dense tensors have none.
template <class Isa>
token_range unused_tokens(const scan_sequences& sequences) {
  if (sequences.cu_seqlens == nullptr) return {};
  return {0, sequences.cu_seqlens[sequences.count], sequences.tokens};
}

/// Rows of tokens that belong to no sequence become 0.
template <class Isa, class Tensor, class OffsetOf>
void clear_unused(const Tensor& tensor, const scan_sequences& sequences, std::int64_t rows,
                  std::int64_t columns, int threads, const OffsetOf& offset_of) {
  const token_range unused = unused_tokens<Isa>(sequences);
  if (tensor.data == nullptr || unused.begin >= unused.end) return;
  prim::parallel_items<Isa>(unused.end - unused.begin, threads, [&](std::int64_t item, int) {
    for (std::int64_t row = 0; row < rows; ++row) {
      with_elements<Isa>(tensor, [&](auto* elements) {
        using element = std::remove_pointer_t<decltype(elements)>;
        auto* const to = elements + offset_of(unused.begin + item, row);
        std::fill(to, to + columns, element(0.0f));
      });
    }
  });
}
template <class Isa>
void clear_unused(const scan_tensor& tensor, const scan_sequences& sequences, std::int64_t heads,
                  std::int64_t columns, int threads) {
  clear_unused<Isa>(tensor, sequences, heads, columns, threads,
                    [&](std::int64_t token, std::int64_t head) {
                      return token * tensor.token + head * tensor.head;
                    });
}
template <class Isa>
void clear_unused(const channel_rows& tensor, const scan_sequences& sequences,
                  std::int64_t channels, int threads) {
  clear_unused<Isa>(tensor, sequences, 1, channels, threads,
                    [&](std::int64_t token, std::int64_t) { return token * tensor.row; });
}

}  // namespace tessera::kernels::selective_scan::cpu
