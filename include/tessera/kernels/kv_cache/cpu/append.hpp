// New keys and values into pages of a pool. Called by the rows of kv_cache_append, and by
// operations that attend to what they write first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tessera/families/kv_cache/kernel_args.hpp>
#include <tessera/prim/common/code_scale.hpp>
#include <tessera/prim/common/element_cast.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/simd.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::kernels::kv_cache::cpu {

/// One of the two halves of a token: its keys or its values.
struct half_of_token {
  const void* from = nullptr;
  new_token_strides from_strides{};
  std::byte* to = nullptr;
  pool_strides to_strides{};
  std::int64_t columns = 0, width = 0;
  float scale = 1.0f;
  const float* scales = nullptr;
  token_scales token_scale{};
};

template <class Isa>
half_of_token keys_of(const kv_append_args& args) {
  return {args.k_new,     args.k_new_strides, static_cast<std::byte*>(args.k),
          args.k_strides, args.k_columns,     args.k_width,
          args.k_scale,   args.k_scales,      args.k_token_scales};
}
template <class Isa>
half_of_token values_of(const kv_append_args& args) {
  auto* const behind = static_cast<std::byte*>(args.k) +
                       args.v_offset * static_cast<std::int64_t>(size_of(args.pool_type));
  return {args.v_new,
          args.v_new_strides,
          args.v != nullptr ? static_cast<std::byte*>(args.v) : behind,
          args.v_strides,
          args.v_columns,
          args.v_width,
          args.v_scale,
          args.v_scales,
          args.v_token_scales};
}

/// The scale of a row that is divided by `factor` too.
template <class To, class From>
float scale_of_row(const From* from, std::int64_t count, float factor) {
  float largest = 0.0f;
  for (std::int64_t i = 0; i < count; ++i) {
    largest = prim::largest_finite(largest, prim::float_of(from[i]));
  }
  return prim::code_scale<To>(largest, factor);
}

/// to[0, count) = from / scale, rounded.
template <class Isa, class From, class To>
void store_rounded(const From* from, To* to, std::int64_t count, float scale) {
  using vec = prim::simd<Isa>;
  constexpr std::int64_t block = 64;
  alignas(64) float values[block];
  for (std::int64_t begin = 0; begin < count; begin += block) {
    const std::int64_t left = std::min(count - begin, block);
    std::int64_t at = 0;
    for (; at + vec::width <= left; at += vec::width) {
      vec::store(values + at, vec::load_as(from + begin + at));
    }
    for (; at < left; ++at) values[at] = prim::float_of(from[begin + at]);
    if (scale != 1.0f) {
      for (std::int64_t i = 0; i < left; ++i) values[i] /= scale;
    }
    if constexpr (sizeof(To) == 1) {
      for (std::int64_t i = 0; i < left; ++i) to[begin + i] = prim::nearest<To>(values[i]);
    } else {
      at = 0;
      for (; at + vec::width <= left; at += vec::width) {
        vec::store_as(to + begin + at, vec::load(values + at));
      }
      for (; at < left; ++at) to[begin + at] = prim::nearest<To>(values[at]);
    }
  }
}

/// to[0, count) = from / scale. The same type and scale 1, or elements that have 8 bits already:
/// the same bits.
template <class Isa, class From, class To>
void store_row(const From* from, To* to, std::int64_t count, float scale) {
  if constexpr (std::is_same_v<From, To>) {
    if (sizeof(From) == 1 || scale == 1.0f) {
      std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(To));
      return;
    }
  }
  if constexpr (sizeof(From) > 1) store_rounded<Isa>(from, to, count, scale);
}

template <class Isa, class From, class To>
class append_launch {
 public:
  explicit append_launch(const kv_append_args& args)
      : args_(args), halves_{keys_of<Isa>(args), values_of<Isa>(args)} {
    sequences_ = args.num_seqs != nullptr
                     ? std::clamp<std::int64_t>(*args.num_seqs, 0, args.sequences)
                     : args.sequences;
    used_ = args.cu_seqlens_q != nullptr ? args.cu_seqlens_q[sequences_] : sequences_;
    used_ = std::min(used_, args.tokens);
  }

  void run(int threads) const {
    // 64 KiB of new tokens each.
    const auto token_bytes =
        static_cast<std::int64_t>(sizeof(From)) * args_.heads * (args_.k_columns + args_.v_columns);
    const std::int64_t each =
        std::max<std::int64_t>(65536 / std::max<std::int64_t>(token_bytes, 1), 1);
    const std::int64_t items = (used_ + each - 1) / each;
    prim::parallel_items<Isa>(items, threads, [&](std::int64_t item, int) {
      write_tokens(item * each, std::min((item + 1) * each, used_));
    });
  }

 private:
  void write_tokens(std::int64_t begin, std::int64_t end) const {
    const std::int32_t* const offsets = args_.cu_seqlens_q;
    std::int64_t n = begin;
    if (offsets != nullptr) {
      n = std::upper_bound(offsets, offsets + sequences_ + 1, static_cast<std::int32_t>(begin)) -
          offsets - 1;
    }
    for (std::int64_t token = begin; token < end; ++token) {
      std::int64_t behind = 1;  // this token and those behind it in its sequence
      if (offsets != nullptr) {
        while (offsets[n + 1] <= token) ++n;
        behind = offsets[n + 1] - token;
      } else {
        n = token;
      }
      write(token, n, args_.seqlens_k[n] - behind);
    }
  }

  void write(std::int64_t token, std::int64_t n, std::int64_t key) const {
    const std::int64_t page = args_.table[n * args_.table_row + key / args_.page_size];
    const std::int64_t slot = key % args_.page_size;
    for (const half_of_token& half : halves_) {
      const From* const from =
          static_cast<const From*>(half.from) + token * half.from_strides.token;
      To* const to = reinterpret_cast<To*>(half.to) + page * half.to_strides.page +
                     slot * half.to_strides.token;
      for (std::int64_t h = 0; h < args_.pool_heads; ++h) {
        To* const row = to + h / args_.heads_per_group * half.to_strides.group +
                        h % args_.heads_per_group * half.to_strides.head;
        const std::int64_t columns = h < args_.heads ? half.columns : 0;
        const From* const of_head = from + h * half.from_strides.head;
        float scale =
            half.scales != nullptr && columns > 0 ? half.scale * half.scales[h] : half.scale;
        if constexpr (sizeof(To) == 1 && sizeof(From) > 1) {
          const token_scales& out = half.token_scale;
          if (out.data != nullptr && h < args_.heads) {
            const float own = scale_of_row<To>(of_head, columns, scale);
            out.data[page * out.page + slot * out.slot + h * out.head] = own;
            scale *= own;
          }
        }
        store_row<Isa>(of_head, row, columns, scale);
        std::memset(static_cast<void*>(row + columns), 0,
                    static_cast<std::size_t>(half.width - columns) * sizeof(To));
      }
    }
  }

  const kv_append_args& args_;
  half_of_token halves_[2];
  std::int64_t sequences_ = 0;
  std::int64_t used_ = 0;  ///< tokens that some sequence has
};

/// To a pool of 8-bit elements.
template <class Isa, class From>
void append_to_codes(const kv_append_args& args, int threads) {
  switch (args.pool_type) {
    case dtype::f8_e4m3:
      return append_launch<Isa, From, f8_e4m3>(args).run(threads);
    case dtype::f8_e5m2:
      return append_launch<Isa, From, f8_e5m2>(args).run(threads);
    default:
      return append_launch<Isa, From, std::int8_t>(args).run(threads);
  }
}

template <class Isa, class From>
void append_from(const kv_append_args& args, int threads) {
  switch (args.pool_type) {
    case dtype::f32:
      return append_launch<Isa, From, float>(args).run(threads);
    case dtype::f16:
      return append_launch<Isa, From, f16>(args).run(threads);
    case dtype::bf16:
      return append_launch<Isa, From, bf16>(args).run(threads);
    default:
      return append_to_codes<Isa, From>(args, threads);
  }
}

/// Writes the new tokens. Lengths, offsets and pages have been checked.
template <class Isa>
void append(const kv_append_args& args, int threads) {
  switch (args.new_type) {
    case dtype::f32:
      return append_from<Isa, float>(args, threads);
    case dtype::f16:
      return append_from<Isa, f16>(args, threads);
    default:
      return append_from<Isa, bf16>(args, threads);
  }
}

}  // namespace tessera::kernels::kv_cache::cpu
