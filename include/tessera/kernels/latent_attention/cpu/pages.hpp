// Latents in the pages of a cache: where they lie, and new ones on their way there.
#pragma once

#include <cstdint>
#include <cstring>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/visibility.hpp>

namespace tessera::kernels::latent_attention::cpu {

/// The sequences of a launch, and the tokens that are their rows.
template <class Kernel>
struct paged_sequences {
  const latent_attention_kernel_args& args;

  std::int64_t count() const { return args.num_seqs != nullptr ? *args.num_seqs : args.entries; }
  prim::sequence operator[](std::int64_t n) const {
    prim::sequence seq{.index = n, .q_len = args.length, .k_len = args.seqlens_k[n]};
    if (args.cu_seqlens_q != nullptr) {
      seq.q_begin = args.cu_seqlens_q[n];
      seq.q_len = args.cu_seqlens_q[n + 1] - seq.q_begin;
    }
    return seq;
  }
  /// Packed: tokens from here on belong to no sequence.
  std::int64_t end_of_tokens() const {
    return args.cu_seqlens_q != nullptr ? args.cu_seqlens_q[count()] : args.length;
  }
};

/// Element offset of the row of token `j` of a sequence in `rows`, of pages.
template <class Kernel>
TESSERA_INLINE std::int64_t slot_of(const latent_attention_kernel_args& args,
                                    const latent_rows& rows, std::int64_t sequence,
                                    std::int64_t j) {
  const latent_pages& pages = args.pages;
  const std::int64_t slot = j % pages.page_size;
  const std::int64_t page = pages.numbers[sequence * pages.row + j / pages.page_size];
  return rows.at(page, slot / pages.lanes, slot % pages.lanes);
}

/// Copies the rows of token `i` of a sequence, one of its last, to their slots, bit for bit.
template <class Kernel>
void write_latent(const latent_attention_kernel_args& args, const prim::sequence& seq,
                  std::int64_t i) {
  const auto copy = [&](const latent_rows& from, const latent_rows& to, std::int64_t columns) {
    const auto size = static_cast<std::int64_t>(size_of(to.type));
    const std::int64_t slot = slot_of<Kernel>(args, to, seq.index, seq.k_len - seq.q_len + i);
    std::memcpy(static_cast<std::byte*>(to.data) + slot * size,
                static_cast<const std::byte*>(from.data) + from.at(0, seq.q_begin + i) * size,
                static_cast<std::size_t>(columns * size));
  };
  copy(args.ckv_new, args.ckv, args.latent);
  copy(args.k_pe_new, args.k_pe, args.rope);
}

}  // namespace tessera::kernels::latent_attention::cpu
