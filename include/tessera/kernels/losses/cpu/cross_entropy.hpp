// Cross entropy of logits in memory, and its gradients: each token's row of logits is read once, or
// for gradients twice, the second time from a cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/losses/config.hpp>
#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/losses/cpu/blocks.hpp>
#include <tessera/kernels/losses/cpu/cross_entropy_row.hpp>
#include <tessera/kernels/losses/cpu/logit_sums.hpp>
#include <tessera/kernels/losses/cpu/token_items.hpp>
#include <tessera/kernels/losses/cpu/tokens.hpp>
#include <tessera/kernels/losses/cpu/totals.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::losses::cpu {

/// What both directions do with a row of logits.
template <class Kernel>
class cross_entropy_rows {
 public:
  using isa_type = typename isa::of<Kernel::config.target>::type;
  using vec = prim::simd<isa_type>;

  explicit cross_entropy_rows(const cross_entropy_kernel_args& args)
      : args_(args), items_(args.tokens), row_(args.form, args.tokens.classes) {}

 protected:
  std::int64_t target_at(const token_place& at) const {
    return args_.tokens.targets.data == nullptr ? -1 : target_of<isa_type>(args_.tokens, at);
  }

  /// The sums of a row; parts of the classes by themselves first.
  logit_sums sums_of_row(const token_place& at, target_logit& target) const {
    logit_sums all, part;
    const std::int64_t part_size = args_.tokens.classes / args_.tokens.parts;
    float_block x, p;
    const bool soft = args_.soft_targets.data != nullptr;
    for_each_block<isa_type>(
        args_.tokens.classes, args_.tokens.parts, [&](std::int64_t first, int count) {
          load_block<isa_type>(args_.logits, at, first, count, x);
          if (soft) load_block<isa_type>(args_.soft_targets, at, first, count, p);
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
  const token_items<isa_type> items_;
  const cross_entropy_row<isa_type> row_;
};

template <class Kernel>
class cross_entropy_forward : cross_entropy_rows<Kernel> {
  using base = cross_entropy_rows<Kernel>;
  using isa_type = typename base::isa_type;

 public:
  explicit cross_entropy_forward(const cross_entropy_kernel_args& args) : base(args) {}

  /// Sums of each work item.
  std::size_t workspace_bytes(int) const {
    return static_cast<std::size_t>(this->items_.count()) * sizeof(loss_totals);
  }

  void run(std::byte* workspace, int threads) const {
    const cross_entropy_kernel_args& args = this->args_;
    const loss_outputs<isa_type> outputs(args.tokens, args.form.z_part, args.form.accuracy);
    auto* const totals = reinterpret_cast<loss_totals*>(workspace);
    prim::parallel_items<isa_type>(this->items_.count(), threads, [&](std::int64_t item, int) {
      loss_totals own;
      this->items_.for_each(item, [&](const token_place& at, double weight) {
        if (weight == 0) return outputs.skip(at);
        target_logit target{.target = this->target_at(at)};
        const logit_sums sums = this->sums_of_row(at, target);
        outputs.add(own, at, weight, this->row_.value(sums, target));
      });
      totals[item] = own;
    });
    outputs.finish(totals, this->items_.count());
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
    prim::parallel_items<isa_type>(this->items_.count(), threads, [&](std::int64_t item, int) {
      this->items_.for_each(item, [&](const token_place& at, double weight) {
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
      load_block<isa_type>(args.logits, at, first, count, x);
      const bool soft = args.soft_targets.data != nullptr;
      if (soft) {
        load_block<isa_type>(args.soft_targets, at, first, count, p);
        if (args.d_soft_targets.data != nullptr) store_d_shares(at, first, count, x, gradient);
      }
      differentiate_block<isa_type>(x.at, count, gradient);
      if (soft) subtract_shares(x, p, count, gradient.share_factor);
      const std::int64_t of_target = target.target - first;
      if (of_target >= 0 && of_target < count) x.at[of_target] -= gradient.at_target;
      store_block<isa_type>(args.d_logits, at, first, count, x);
    });
  }

  /// d_p = factor (lse - x).
  void store_d_shares(const token_place& at, std::int64_t first, int count, const float_block& x,
                      const logit_gradient& gradient) const {
    float_block d_p;
    const auto shift = vec::broadcast(gradient.shift),
               log_sum = vec::broadcast(gradient.log2_of_sum * ln_2),
               factor = vec::broadcast(gradient.share_factor);
    for (int i = 0; i < count; i += vec::width) {
      const auto difference = vec::sub(vec::load(x.at + i), shift);
      vec::store(d_p.at + i, vec::mul(factor, vec::sub(log_sum, difference)));
    }
    store_block<isa_type>(this->args_.d_soft_targets, at, first, count, d_p);
  }

  static void subtract_shares(float_block& x, const float_block& p, int count, float factor) {
    const auto by = vec::broadcast(-factor);
    for (int i = 0; i < count; i += vec::width) {
      vec::store(x.at + i, vec::fma(vec::load(p.at + i), by, vec::load(x.at + i)));
    }
  }

  /// The gradients of a token of weight 0.
  void clear(const token_place& at) const {
    const cross_entropy_kernel_args& args = this->args_;
    clear_row<isa_type>(args.d_logits, at, args.tokens.classes);
    clear_row<isa_type>(args.d_soft_targets, at, args.tokens.classes);
  }
};

}  // namespace tessera::kernels::losses::cpu
