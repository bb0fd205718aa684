// Gradients of the norm of state_space_v2: of what the blocks of channels gave, of the gate, and of
// norm_weight. With u what is normalised (y silu(z), or y before the gate), r = 1 / rms(u) of its
// group and g the gradient of u r,
//
//   d_u = r g - u r^3 / size * sum over the group of u g
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/selective_scan/cpu/rows.hpp>
#include <tessera/kernels/selective_scan/cpu/state_space_norm.hpp>
#include <tessera/prim/cpu/activations.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::selective_scan::cpu {

template <class Isa>
class state_space_norm_backward {
  using vec = prim::simd<Isa>;
  using reg = typename vec::reg;

 public:
  explicit state_space_norm_backward(const state_space_kernel_args& args)
      : args_(args), columns_(args.heads * args.columns) {}

  std::size_t bytes(int threads) const { return parts(nullptr, threads).bytes; }

  /// Columns y of every token, as the forward norm finds them, become their gradients.
  void run(float* columns, std::byte* memory, int threads) const {
    const parts_type own = parts(memory, threads);
    if (args_.norm_weight.data != nullptr) {
      gather_row<Isa>(args_.norm_weight, 0, args_.norm_weight.column, columns_, own.weight);
    } else {
      std::fill(own.weight, own.weight + columns_, 1.0f);
    }
    const std::int64_t used = used_tokens<Isa>(args_.sequences);
    const std::int64_t rows = entries_of<Isa>(args_.sequences) * used;
    const std::int64_t items = (rows + item_rows - 1) / item_rows;
    prim::parallel_items<Isa>(items, threads, [&](std::int64_t item, int thread) {
      float* const sums = own.weight_sums + item * row_floats();
      std::fill(sums, sums + columns_, 0.0f);
      token_rows memory_of_thread(own.rows + thread * 4 * row_floats(), row_floats());
      const std::int64_t end = std::min(rows, (item + 1) * item_rows);
      for (std::int64_t row = item * item_rows; row < end; ++row) {
        const std::int64_t entry = row / used, token = row % used;
        float* const y = columns + (entry * args_.sequences.tokens + token) * columns_;
        step_back(entry, token, y, own.weight, sums, memory_of_thread);
      }
    });
    store_weight_gradient(own, items);
  }

 private:
  static constexpr std::int64_t item_rows = 64;

  /// Rows of a token.
  struct token_rows {
    token_rows(float* first, std::int64_t floats)
        : gate(first), slope(first + floats), d_out(first + 2 * floats), u(first + 3 * floats) {}
    float* gate;   ///< silu(z)
    float* slope;  ///< silu'(z)
    float* d_out;
    float* u;
  };
  struct parts_type {
    float *weight = nullptr, *weight_sums = nullptr, *rows = nullptr;
    std::size_t bytes = 0;
  };
  parts_type parts(std::byte* base, int threads) const {
    if (!args_.norm) return {};
    const std::int64_t tokens = entries_of<Isa>(args_.sequences) * args_.sequences.tokens;
    prim::float_carver carver(base);
    parts_type all;
    all.weight = carver.take(row_floats());
    all.weight_sums = carver.take((tokens / item_rows + 1) * row_floats());
    all.rows = carver.take(threads * 4 * row_floats());
    all.bytes = carver.bytes();
    return all;
  }
  /// Room for a row and for the register that its last head ends in.
  std::int64_t row_floats() const { return columns_ + vec::width; }

  void step_back(std::int64_t entry, std::int64_t token, float* y, const float* weight,
                 float* weight_sums, token_rows& rows) const {
    load_columns(args_.d_out, entry, token, rows.d_out);
    load_gate(entry, token, rows);
    const bool before_gate = args_.norm_before_gate;
    for_each_register<Isa>(columns_, [&](std::int64_t at, int count) {
      const reg value = vec::load_n(y + at, count), gate = vec::load_n(rows.gate + at, count);
      vec::store_n(rows.u + at, before_gate ? value : vec::mul(value, gate), count);
    });
    const std::int64_t size = args_.norm_group_size;
    for (std::int64_t first = 0; first < columns_; first += size) {
      group_back(first, y, weight, weight_sums, rows);
    }
    if (args_.d_z.data == nullptr) return;
    for (std::int64_t head = 0; head < args_.heads; ++head) {
      store_row<Isa>(args_.d_z, offset_at(args_.d_z, entry, token, head), args_.columns,
                     rows.slope + head * args_.columns);
    }
  }

  /// y becomes d_y; the slope of the gate becomes the gradient of z.
  void group_back(std::int64_t first, float* y, const float* weight, float* weight_sums,
                  token_rows& rows) const {
    const bool before_gate = args_.norm_before_gate;
    reg squares = vec::zero(), products = vec::zero();
    const auto gradient_at = [&](std::int64_t at, int count) {
      const reg d_out = vec::load_n(rows.d_out + at, count);
      return before_gate ? vec::mul(d_out, vec::load_n(rows.gate + at, count)) : d_out;
    };
    for_each_register<Isa>(args_.norm_group_size, [&](std::int64_t column, int count) {
      const std::int64_t at = first + column;
      const reg u = vec::load_n(rows.u + at, count);
      const reg g = vec::mul(gradient_at(at, count), vec::load_n(weight + at, count));
      squares = vec::fma(u, u, squares);
      products = vec::fma(u, g, products);
    });
    const float size = static_cast<float>(args_.norm_group_size);
    const float r = 1.0f / std::sqrt(vec::sum(squares) / size + args_.norm_eps);
    const reg scale = vec::broadcast(r);
    const reg shared = vec::broadcast(-r * (r * r) / size * vec::sum(products));
    for_each_register<Isa>(args_.norm_group_size, [&](std::int64_t column, int count) {
      const std::int64_t at = first + column;
      const reg u = vec::load_n(rows.u + at, count), value = vec::load_n(y + at, count);
      const reg gate = vec::load_n(rows.gate + at, count);
      const reg gradient = gradient_at(at, count), w = vec::load_n(weight + at, count);
      const reg sum = vec::load_n(weight_sums + at, count);
      vec::store_n(weight_sums + at, vec::fma(gradient, vec::mul(u, scale), sum), count);
      const reg d_u = vec::fma(u, shared, vec::mul(scale, vec::mul(gradient, w)));
      const reg normalised = vec::mul(vec::mul(value, scale), w);
      const reg d_gate = before_gate ? vec::mul(vec::load_n(rows.d_out + at, count), normalised)
                                     : vec::mul(d_u, value);
      const reg slope = vec::load_n(rows.slope + at, count);
      vec::store_n(rows.slope + at, vec::mul(d_gate, slope), count);
      vec::store_n(y + at, before_gate ? d_u : vec::mul(d_u, gate), count);
    });
  }

  /// What a head's row writes behind its columns is the next head's.
  void load_columns(const scan_tensor& tensor, std::int64_t entry, std::int64_t token,
                    float* to) const {
    for (std::int64_t head = 0; head < args_.heads; ++head) {
      load_row<Isa>(tensor, offset_at(tensor, entry, token, head), args_.columns,
                    to + head * args_.columns);
    }
  }
  void load_gate(std::int64_t entry, std::int64_t token, token_rows& rows) const {
    if (args_.z.data == nullptr) {
      std::fill(rows.gate, rows.gate + columns_, 1.0f);
      std::fill(rows.slope, rows.slope + columns_, 0.0f);
      return;
    }
    load_columns(args_.z, entry, token, rows.gate);
    for_each_register<Isa>(columns_, [&](std::int64_t at, int count) {
      const prim::silu_value<Isa> gate = prim::silu_of<Isa>(vec::load_n(rows.gate + at, count));
      vec::store_n(rows.gate + at, gate.value, count);
      vec::store_n(rows.slope + at, gate.slope, count);
    });
  }

  void store_weight_gradient(const parts_type& own, std::int64_t items) const {
    if (args_.d_norm_weight.data == nullptr) return;
    for (std::int64_t column = 0; column < columns_; ++column) {
      double sum = 0;
      for (std::int64_t item = 0; item < items; ++item) {
        sum += static_cast<double>(own.weight_sums[item * row_floats() + column]);
      }
      store_sum<Isa>(args_.d_norm_weight, column * args_.d_norm_weight.column, sum);
    }
  }

  const state_space_kernel_args& args_;
  std::int64_t columns_;
};

}  // namespace tessera::kernels::selective_scan::cpu
