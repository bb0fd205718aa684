// Gradients of cross entropy of logits that nobody holds; see linear_cross_entropy.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/losses/cpu/cross_entropy_row.hpp>
#include <tessera/kernels/losses/cpu/linear_cross_entropy.hpp>
#include <tessera/kernels/losses/cpu/linear_tile.hpp>
#include <tessera/kernels/losses/cpu/token_items.hpp>
#include <tessera/kernels/losses/cpu/tokens.hpp>
#include <tessera/prim/cpu/gemm/pack.hpp>
#include <tessera/prim/cpu/gemm/product.hpp>
#include <tessera/prim/cpu/math.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::losses::cpu {

/// A token that counts: what makes gradients of its logits.
struct alignas(32) linear_gradient {
  logit_gradient of_logits;
  std::int32_t target = 0;
};

template <class Kernel>
class linear_cross_entropy_backward : linear_rows<Kernel> {
  using base = linear_rows<Kernel>;
  using shape = typename base::shape;
  using isa_type = typename base::isa_type;
  using vec = typename base::vec;
  using words = typename shape::words;
  using tile_type = typename base::tile_type;

 public:
  explicit linear_cross_entropy_backward(const linear_cross_entropy_kernel_args& args)
      : base(args) {}

  /// Numbers and gradients of tokens, tiles of threads.
  std::size_t workspace_bytes(int threads) const {
    return static_cast<std::size_t>(this->most_rows()) *
               (sizeof(linear_gradient) + sizeof(std::int64_t)) +
           static_cast<std::size_t>(threads) * this->scratch_floats(true) * sizeof(float);
  }

  void run(std::byte* workspace, int threads) const {
    launch_memory memory;
    memory.gradients = reinterpret_cast<linear_gradient*>(workspace);
    memory.rows = reinterpret_cast<std::int64_t*>(memory.gradients + this->most_rows());
    memory.scratch = reinterpret_cast<std::byte*>(memory.rows + this->most_rows());
    memory.active = this->find_active(memory.rows, [&](const token_place& at) {
      clear_row<isa_type>(this->args_.d_hidden, at, this->args_.columns);
    });
    const loss_gradients<isa_type> factors(this->args_.tokens);
    prim::parallel_items<isa_type>(base::tiles_of(memory.active), threads,
                                   [&](std::int64_t item, int thread) {
                                     differentiate_hidden(memory, item, thread, factors);
                                   });
    const std::int64_t blocks = (this->args_.tokens.classes + shape::classes - 1) / shape::classes;
    prim::parallel_items<isa_type>(blocks, threads, [&](std::int64_t item, int thread) {
      differentiate_weight(memory, item, thread);
    });
  }

 private:
  struct launch_memory {
    linear_gradient* gradients = nullptr;
    std::int64_t* rows = nullptr;
    std::byte* scratch = nullptr;
    std::int64_t active = 0;
  };

  void enter(const launch_memory& memory, std::int64_t item, tile_type& tile) const {
    tile.enter(memory.rows + item * shape::tokens, base::count_in(item, memory.active));
  }

  /// d_hidden of a tile of tokens; leaves what the gradients of its logits are made of.
  void differentiate_hidden(const launch_memory& memory, std::int64_t item, int thread,
                            const loss_gradients<isa_type>& factors) const {
    const linear_cross_entropy_kernel_args& args = this->args_;
    const linear_scratch scratch = this->scratch_at(memory.scratch, thread, true);
    tile_type tile(args, scratch);
    enter(memory, item, tile);
    linear_gradient* const gradients = memory.gradients + item * shape::tokens;
    typename base::tile_rows sums;
    if (args.logit_sums.data == nullptr) {
      this->sum_up(tile, sums);
    } else {
      this->take_sums(tile, sums);
    }
    for (int row = 0; row < tile.count(); ++row) {
      const auto& of = sums[static_cast<std::size_t>(row)];
      const token_place at = tile.place(row);
      const double factor = factors.of(at, weight_of<isa_type>(args.tokens, at));
      gradients[row] = {this->row_.gradient(of.sums, of.target.target, factor),
                        static_cast<std::int32_t>(of.target.target)};
    }
    for_each_block<isa_type, shape::classes>(args.tokens.classes, 1,
                                             [&](std::int64_t first, int count) {
                                               differentiate_logits(tile, gradients, first, count);
                                               add_hidden(tile, scratch, first, count);
                                             });
    const std::int64_t stride = prim::padded<isa_type>(args.columns);
    for (int row = 0; row < tile.count(); ++row) {
      prim::store_row<isa_type>(args.d_hidden, offset_of<isa_type>(args.d_hidden, tile.place(row)),
                                args.columns, scratch.sums + row * stride);
    }
  }

  /// d_weight and d_bias of a block of classes.
  void differentiate_weight(const launch_memory& memory, std::int64_t item, int thread) const {
    const linear_cross_entropy_kernel_args& args = this->args_;
    const linear_scratch scratch = this->scratch_at(memory.scratch, thread, true);
    const std::int64_t first = item * shape::classes;
    const int count =
        static_cast<int>(std::min<std::int64_t>(args.tokens.classes - first, shape::classes));
    alignas(64) float bias[shape::classes] = {};
    const std::int64_t tiles = base::tiles_of(memory.active);
    if (tiles == 0) std::fill_n(scratch.sums, args.columns * shape::classes, 0.0f);
    for (std::int64_t at = 0; at < tiles; ++at) {
      tile_type tile(args, scratch);
      enter(memory, at, tile);
      differentiate_logits(tile, memory.gradients + at * shape::tokens, first, count);
      add_weight(tile, scratch, count, at == 0);
      if (args.d_bias.data != nullptr) add_bias(tile, count, bias);
    }
    for (std::int64_t column = 0; column < args.columns; ++column) {
      prim::store_row<isa_type>(args.d_weight, column * args.d_weight.row + first, count,
                                scratch.sums + column * shape::classes);
    }
    if (args.d_bias.data != nullptr) prim::store_row<isa_type>(args.d_bias, first, count, bias);
  }

  /// The logits of a tile and a block of classes become their gradients, with zeros behind them up
  /// to a whole register.
  void differentiate_logits(const tile_type& tile, const linear_gradient* gradients,
                            std::int64_t first, int count) const {
    tile.multiply(first, count);
    for (int row = 0; row < tile.count(); ++row) {
      const logit_gradient& gradient = gradients[row].of_logits;
      float* const logits = tile.logits(row);
      alignas(64) float capped[shape::classes];
      float* const x = this->args_.soft_cap == 0 ? logits : capped;
      static_cast<void>(tile.capped(row, count, capped));
      differentiate_block<isa_type>(x, count, gradient);
      const std::int64_t target = gradients[row].target - first;
      if (target >= 0 && target < count) x[target] -= gradient.at_target;
      if (x == capped) multiply_by_slope(capped, count, logits);
      std::fill(logits + count, logits + shape::padded(count), 0.0f);
    }
  }

  /// Logits x become gradients times the slope of the cap. That is 1 - tanh^2, of which nothing
  /// would be left where tanh is nearly 1: 4 e / (1 + e)^2 with e = exp(-2 |x / cap|).
  void multiply_by_slope(const float* gradients, int count, float* x) const {
    const float soft_cap = this->args_.soft_cap;
    const auto one = vec::broadcast(1.0f), four = vec::broadcast(4.0f), zero = vec::zero(),
               twice = vec::broadcast(-2 / soft_cap);
    for (int at = 0; at < count; at += vec::width) {
      const auto logit = vec::load(x + at);
      const auto magnitude = vec::select_below(logit, zero, vec::sub(zero, logit), logit);
      const auto e = prim::exp_of<isa_type>(vec::mul(magnitude, twice));
      const auto sum = vec::add(one, e);
      const auto slope = vec::div(vec::mul(four, e), vec::mul(sum, sum));
      vec::store(x + at, vec::mul(vec::load(gradients + at), slope));
    }
  }

  /// sums [tokens][columns] (+)= gradients weight^T.
  void add_hidden(const tile_type& tile, const linear_scratch& scratch, std::int64_t first,
                  int count) const {
    const linear_cross_entropy_kernel_args& args = this->args_;
    const std::int64_t stride = prim::padded<isa_type>(args.columns);
    for (std::int64_t k = 0; k < args.columns; k += shape::depth) {
      const int depth = tile.depth_at(k);
      constexpr int nr = shape::panels::nr;
      const typename shape::panels weight{scratch.panels, shape::padded(count),
                                          (depth + nr - 1) / nr * nr};
      prim::with_elements<isa_type>(args.weight, [&](const auto* elements) {
        using element = std::remove_cvref_t<decltype(*elements)>;
        const prim::strided_rows<element> rows{elements + k * args.weight.row + first,
                                               args.weight.row};
        prim::pack_transposed<words>(rows, {0, depth}, count, weight);
      });
      shape::template multiply<shape::classes>(scratch.logits, tile.count(), weight,
                                               shape::padded(depth), scratch.sums + k, stride,
                                               first == 0);
    }
  }

  /// sums [columns][classes] (+)= hidden^T gradients.
  void add_weight(const tile_type& tile, const linear_scratch& scratch, int count,
                  bool overwrite) const {
    const auto columns = static_cast<int>(this->args_.columns);
    tile.with_hidden_rows([&](const auto& hidden) {
      const prim::panels<isa_type, shape::tokens / shape::width> transposed{
          scratch.transposed, shape::padded(columns), shape::tokens};
      prim::pack_transposed<words>(hidden, {0, tile.count()}, columns, transposed);
    });
    const typename shape::panels gradients{scratch.panels, shape::padded(tile.count()),
                                           shape::padded(count)};
    const prim::strided_rows<float> rows{scratch.logits, shape::classes};
    prim::pack_rows<words>(rows, {0, tile.count()}, count, nullptr, gradients);
    shape::template multiply<shape::tokens>(scratch.transposed, columns, gradients,
                                            gradients.columns, scratch.sums, shape::classes,
                                            overwrite);
  }

  static void add_bias(const tile_type& tile, int count, float* bias) {
    for (int at = 0; at < count; at += vec::width) {
      auto sum = vec::zero();
      for (int row = 0; row < tile.count(); ++row) {
        sum = vec::add(sum, vec::load(tile.logits(row) + at));
      }
      vec::store(bias + at, vec::add(vec::load(bias + at), sum));
    }
  }
};

}  // namespace tessera::kernels::losses::cpu
