// The norm of state_space_v2: rms over groups of a token's columns, which belong to many blocks of
// channels. Blocks leave their columns in f32; this pass makes outputs of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/selective_scan/cpu/rows.hpp>
#include <tessera/prim/cpu/activations.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::selective_scan::cpu {

/// Calls visit(first, floats) for each register of `count` floats; the last one may be shorter.
template <class Isa, class Visit>
TESSERA_INLINE void for_each_register(std::int64_t count, const Visit& visit) {
  constexpr std::int64_t width = prim::simd<Isa>::width;
  for (std::int64_t at = 0; at < count; at += width) {
    visit(at, static_cast<int>(std::min(count - at, width)));
  }
}

template <class Isa>
class state_space_norm {
  using vec = prim::simd<Isa>;

 public:
  explicit state_space_norm(const state_space_kernel_args& args)
      : args_(args), columns_(args.heads * args.columns) {}

  std::size_t bytes(int threads) const { return parts(nullptr, threads).bytes; }
  /// Where blocks leave the columns of a token, head by head.
  float* token_columns(std::byte* workspace, std::int64_t entry, std::int64_t token) const {
    return reinterpret_cast<float*>(workspace) +
           (entry * args_.sequences.tokens + token) * columns_;
  }

  void run(std::byte* workspace, int threads) const {
    const memory own = parts(workspace, threads);
    if (args_.norm_weight.data != nullptr) {
      gather_row<Isa>(args_.norm_weight, 0, args_.norm_weight.column, columns_, own.weight);
    } else {
      std::fill(own.weight, own.weight + columns_, 1.0f);
    }
    const std::int64_t used = used_tokens<Isa>(args_.sequences);
    const std::int64_t rows = entries_of<Isa>(args_.sequences) * used;
    prim::parallel_items<Isa>(rows, threads, [&](std::int64_t row, int thread) {
      float* const y = token_columns(workspace, row / used, row % used);
      normalise(row / used, row % used, y, own.weight, own.gates + thread * row_floats());
    });
  }

 private:
  struct memory {
    float *columns = nullptr, *weight = nullptr, *gates = nullptr;
    std::size_t bytes = 0;
  };
  memory parts(std::byte* base, int threads) const {
    if (!args_.norm) return {};
    const std::int64_t entries = entries_of<Isa>(args_.sequences);
    prim::float_carver carver(base);
    memory all;
    all.columns = carver.take(entries * args_.sequences.tokens * columns_);
    all.weight = carver.take(row_floats());
    all.gates = carver.take(threads * row_floats());
    all.bytes = carver.bytes();
    return all;
  }
  /// Room for a row and for the register that its last head ends in.
  std::int64_t row_floats() const { return columns_ + vec::width; }

  void normalise(std::int64_t entry, std::int64_t token, float* y, const float* weight,
                 float* gates) const {
    const bool gated = args_.z.data != nullptr;
    if (gated) load_gates(entry, token, gates);
    if (gated && !args_.norm_before_gate) multiply(y, gates, columns_, 1.0f);
    const std::int64_t size = args_.norm_group_size;
    for (std::int64_t first = 0; first < columns_; first += size) {
      const float mean = sum_of_squares(y + first, size) / static_cast<float>(size);
      multiply(y + first, weight + first, size, 1.0f / std::sqrt(mean + args_.norm_eps));
    }
    if (gated && args_.norm_before_gate) multiply(y, gates, columns_, 1.0f);
    for (std::int64_t head = 0; head < args_.heads; ++head) {
      store_row<Isa>(args_.out, offset_at(args_.out, entry, token, head), args_.columns,
                     y + head * args_.columns);
    }
  }

  /// silu(z) of a token. What a head's row writes behind its columns is the next head's.
  void load_gates(std::int64_t entry, std::int64_t token, float* gates) const {
    for (std::int64_t head = 0; head < args_.heads; ++head) {
      load_row<Isa>(args_.z, offset_at(args_.z, entry, token, head), args_.columns,
                    gates + head * args_.columns);
    }
    for_each_register<Isa>(columns_, [&](std::int64_t at, int count) {
      const auto z = vec::load_n(gates + at, count);
      vec::store_n(gates + at, prim::silu_of<Isa>(z).value, count);
    });
  }

  static float sum_of_squares(const float* values, std::int64_t count) {
    auto sum = vec::zero();
    for_each_register<Isa>(count, [&](std::int64_t at, int floats) {
      const auto value = vec::load_n(values + at, floats);
      sum = vec::fma(value, value, sum);
    });
    return vec::sum(sum);
  }

  /// values *= by * factor.
  static void multiply(float* values, const float* by, std::int64_t count, float factor) {
    for_each_register<Isa>(count, [&](std::int64_t at, int floats) {
      const auto product = vec::mul(vec::load_n(by + at, floats), vec::broadcast(factor));
      vec::store_n(values + at, vec::mul(vec::load_n(values + at, floats), product), floats);
    });
  }

  const state_space_kernel_args& args_;
  std::int64_t columns_;
};

}  // namespace tessera::kernels::selective_scan::cpu
