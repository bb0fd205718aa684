// Cross entropy of logits in memory, and its gradients: each token's row of logits is read once, or
// for gradients twice, the second time from a cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/families/losses/config.hpp>
#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/losses/cpu/blocks.hpp>
#include <tessera/kernels/losses/cpu/cross_entropy_row.hpp>
#include <tessera/kernels/losses/cpu/logit_sums.hpp>
#include <tessera/kernels/losses/cpu/tokens.hpp>
#include <tessera/kernels/losses/cpu/totals.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/rows.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::losses::cpu {

/// What both directions do with a row of logits.
template <class Kernel>
class cross_entropy_rows {
 public:
  using isa_type = typename isa::of<Kernel::config.target>::type;
  using vec = prim::simd<isa_type>;

  explicit cross_entropy_rows(const cross_entropy_kernel_args& args)
      : args_(args),
        row_(args.form, args.tokens.classes),
        rows_of_item_(losses_schedule::rows_of_item(args.tokens.classes)) {}

 protected:
  std::int64_t items() const {
    return (count_of<isa_type>(args_.tokens) + rows_of_item_ - 1) / rows_of_item_;
  }

  /// Calls body(place, weight) for each token of a work item.
  template <class Body>
  void for_each_token(std::int64_t item, const Body& body) const {
    const loss_tokens& tokens = args_.tokens;
    const std::int64_t end = std::min((item + 1) * rows_of_item_, count_of<isa_type>(tokens));
    for (std::int64_t row = item * rows_of_item_; row < end; ++row) {
      const token_place at = place_of<isa_type>(tokens, row);
      body(at, weight_of<isa_type>(tokens, at));
    }
  }

  std::int64_t target_at(const token_place& at) const {
    return args_.tokens.targets.data == nullptr ? -1 : target_of<isa_type>(args_.tokens, at);
  }

  /// The elements of a row that belong to the classes of a block.
  static void load(const token_rows& from, const token_place& at, std::int64_t first, int count,
                   float_block& to) {
    prim::load_row<isa_type>(from, offset_of<isa_type>(from, at) + first, count, to.at);
  }

  /// The sums of a row; parts of the classes by themselves first.
  logit_sums sums_of_row(const token_place& at, target_logit& target) const {
    logit_sums all, part;
    const std::int64_t part_size = args_.tokens.classes / args_.tokens.parts;
    float_block x, p;
    const bool soft = args_.soft_targets.data != nullptr;
    for_each_block<isa_type>(
        args_.tokens.classes, args_.tokens.parts, [&](std::int64_t first, int count) {
          load(args_.logits, at, first, count, x);
          if (soft) load(args_.soft_targets, at, first, count, p);
          const logit_sums block =
              sums_of_block<isa_type>(x.at, soft ? p.at : nullptr, count, row_.is_smoothed());
          target.look_at<isa_type>(x.at, first, count, block.maximum);
          part.merge<isa_type>(block);
          if ((first + count) % part_size != 0) return;
          all.merge<isa_type>(part);
          part = {};
        });
    return all;
  }

  const cross_entropy_kernel_args& args_;
  const cross_entropy_row<isa_type> row_;
  const std::int64_t rows_of_item_;
};

template <class Kernel>
class cross_entropy_forward : cross_entropy_rows<Kernel> {
  using base = cross_entropy_rows<Kernel>;
  using isa_type = typename base::isa_type;

 public:
  explicit cross_entropy_forward(const cross_entropy_kernel_args& args) : base(args) {}

  /// Sums of each work item.
  std::size_t workspace_bytes(int) const {
    return static_cast<std::size_t>(this->items()) * sizeof(loss_totals);
  }

  void run(std::byte* workspace, int threads) const {
    const cross_entropy_kernel_args& args = this->args_;
    const loss_outputs<isa_type> outputs(args.tokens, args.form.z_part, args.form.accuracy);
    auto* const totals = reinterpret_cast<loss_totals*>(workspace);
    prim::parallel_items<isa_type>(this->items(), threads, [&](std::int64_t item, int) {
      loss_totals own;
      this->for_each_token(item, [&](const token_place& at, double weight) {
        if (weight == 0) return outputs.skip(at);
        target_logit target{.target = this->target_at(at)};
        const logit_sums sums = this->sums_of_row(at, target);
        outputs.add(own, at, weight, this->row_.value(sums, target));
      });
      totals[item] = own;
    });
    outputs.finish(totals, this->items());
  }
};

template <class Kernel>
class cross_entropy_backward : cross_entropy_rows<Kernel> {
  using base = cross_entropy_rows<Kernel>;
  using isa_type = typename base::isa_type;
  using vec = typename base::vec;

 public:
  explicit cross_entropy_backward(const cross_entropy_kernel_args& args) : base(args) {}

  std::size_t workspace_bytes(int) const { return 0; }

  void run(std::byte*, int threads) const {
    const loss_gradients<isa_type> gradients(this->args_.tokens);
    prim::parallel_items<isa_type>(this->items(), threads, [&](std::int64_t item, int) {
      this->for_each_token(item, [&](const token_place& at, double weight) {
        if (weight == 0) return clear(at);
        differentiate(at, gradients.of(at, weight));
      });
    });
  }

 private:
  void differentiate(const token_place& at, double factor) const {
    const cross_entropy_kernel_args& args = this->args_;
    target_logit target{.target = this->target_at(at)};
    const logit_sums sums = this->sums_of_row(at, target);
    const logit_gradient gradient = this->row_.gradient(sums, target.target, factor);
    float_block x, p;
    for_each_block<isa_type>(args.tokens.classes, 1, [&](std::int64_t first, int count) {
      base::load(args.logits, at, first, count, x);
      const bool soft = args.soft_targets.data != nullptr;
      if (soft) {
        base::load(args.soft_targets, at, first, count, p);
        if (args.d_soft_targets.data != nullptr) store_d_shares(at, first, count, x, gradient);
      }
      differentiate_block<isa_type>(x.at, count, gradient);
      if (soft) subtract_shares(x, p, count, gradient.share_factor);
      const std::int64_t of_target = target.target - first;
      if (of_target >= 0 && of_target < count) x.at[of_target] -= gradient.at_target;
      store(args.d_logits, at, first, count, x);
    });
  }

  /// d_p = factor (lse - x).
  void store_d_shares(const token_place& at, std::int64_t first, int count, const float_block& x,
                      const logit_gradient& gradient) const {
    constexpr float ln_2 = 0.693147180559945309417f;
    float_block d_p;
    const auto shift = vec::broadcast(gradient.shift),
               log_sum = vec::broadcast(gradient.log2_of_sum * ln_2),
               factor = vec::broadcast(gradient.share_factor);
    for (int i = 0; i < count; i += vec::width) {
      const auto difference = vec::sub(vec::load(x.at + i), shift);
      vec::store(d_p.at + i, vec::mul(factor, vec::sub(log_sum, difference)));
    }
    store(this->args_.d_soft_targets, at, first, count, d_p);
  }

  static void subtract_shares(float_block& x, const float_block& p, int count, float factor) {
    const auto by = vec::broadcast(-factor);
    for (int i = 0; i < count; i += vec::width) {
      vec::store(x.at + i, vec::fma(vec::load(p.at + i), by, vec::load(x.at + i)));
    }
  }

  static void store(const token_rows& to, const token_place& at, std::int64_t first, int count,
                    const float_block& from) {
    prim::store_row<isa_type>(to, offset_of<isa_type>(to, at) + first, count, from.at);
  }

  /// The gradients of a token of weight 0.
  void clear(const token_place& at) const {
    const cross_entropy_kernel_args& args = this->args_;
    for (const token_rows* rows : {&args.d_logits, &args.d_soft_targets}) {
      if (rows->data == nullptr) continue;
      prim::with_elements<isa_type>(*rows, [&](auto* elements) {
        using element = std::remove_pointer_t<decltype(elements)>;
        auto* const row = elements + offset_of<isa_type>(*rows, at);
        std::fill(row, row + args.tokens.classes, element(0.0f));
      });
    }
  }
};

}  // namespace tessera::kernels::losses::cpu
