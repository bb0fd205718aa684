// Divergences of a student's logits from a teacher's, and the student's gradients. Rows are read
// once, and again from a cache where a sum needs both distributions.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include <tessera/families/losses/config.hpp>
#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/losses/cpu/blocks.hpp>
#include <tessera/kernels/losses/cpu/divergence_sums.hpp>
#include <tessera/kernels/losses/cpu/token_items.hpp>
#include <tessera/kernels/losses/cpu/tokens.hpp>
#include <tessera/kernels/losses/cpu/totals.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/log.hpp>
#include <tessera/prim/cpu/math.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::losses::cpu {

/// Logarithms to base 2 of the probabilities of a row: (x - shift) log2(e) / T - log2_of_sum.
template <class Isa>
class log2_probabilities {
  using vec = prim::simd<Isa>;
  using reg = typename vec::reg;

 public:
  log2_probabilities(const softmax_sums& sums, float factor)
      : shift_(vec::broadcast(finite_maximum(sums.maximum))),
        factor_(vec::broadcast(factor)),
        minus_log_sum_(vec::broadcast(static_cast<float>(-std::log2(sums.powers)))) {}

  TESSERA_INLINE reg at(const float* x) const {
    return vec::fma(vec::sub(vec::load(x), shift_), factor_, minus_log_sum_);
  }

 private:
  reg shift_, factor_, minus_log_sum_;
};

/// The mixture m = beta p_teacher + (1 - beta) p_student against what it is made of. With
/// D = ln(beta p_teacher) - ln((1 - beta) p_student), ln(p_teacher / m) = -ln(beta) - ln(1 + e^-D)
/// and ln(p_student / m) = -ln(1 - beta) - ln(1 + e^D).
template <class Isa>
class mixture {
  using vec = prim::simd<Isa>;
  using reg = typename vec::reg;

 public:
  explicit mixture(double beta)
      : of_student_(vec::broadcast(static_cast<float>(-std::log1p(-beta)))),
        of_teacher_(vec::broadcast(static_cast<float>(-std::log(beta)))),
        log_odds_(vec::broadcast(static_cast<float>(std::log(beta) - std::log1p(-beta)))) {}

  struct log_ratios {
    reg student, teacher;
  };
  TESSERA_INLINE log_ratios at(reg log2_student, reg log2_teacher) const {
    const reg zero = vec::zero();
    const reg d = vec::fma(vec::sub(log2_teacher, log2_student), vec::broadcast(ln_2), log_odds_);
    const reg minus_d = vec::sub(zero, d);
    const reg lower = vec::select_below(d, zero, d, minus_d);
    const reg log_of_sum = prim::log_1_plus<Isa>(prim::exp_of<Isa>(lower));
    return {vec::sub(of_student_, vec::add(vec::max(d, zero), log_of_sum)),
            vec::sub(of_teacher_, vec::add(vec::max(minus_d, zero), log_of_sum))};
  }

 private:
  reg of_student_, of_teacher_, log_odds_;
};

/// What both directions do with a token's rows.
template <class Kernel>
class kl_divergence_rows {
 public:
  using isa_type = typename isa::of<Kernel::config.target>::type;
  using vec = prim::simd<isa_type>;
  using reg = typename vec::reg;

  explicit kl_divergence_rows(const kl_divergence_kernel_args& args)
      : args_(args),
        items_(args.tokens),
        inverse_temperature_(1 / args.temperature),
        factor_(static_cast<float>(1.4426950408889634074 / args.temperature)),
        mixture_(args.beta) {}

 protected:
  /// The student is measured, not the teacher.
  bool is_reverse() const { return args_.direction == kl_direction::reverse; }

  /// The sums of a row; parts of the classes by themselves first.
  divergence_sums sums_of_row(const token_place& at, const divergence_wishes& wishes) const {
    divergence_sums all, part;
    const std::int64_t part_size = args_.tokens.classes / args_.tokens.parts;
    const token_rows& from = is_reverse() ? args_.student : args_.teacher;
    const token_rows& to = is_reverse() ? args_.teacher : args_.student;
    float_block x, y;
    for_each_block<isa_type>(
        args_.tokens.classes, args_.tokens.parts, [&](std::int64_t first, int count) {
          load_block<isa_type>(from, at, first, count, x);
          load_block<isa_type>(to, at, first, count, y);
          part.merge<isa_type>(divergence_of_block<isa_type>(x.at, y.at, count, factor_, wishes),
                               inverse_temperature_);
          if ((first + count) % part_size != 0) return;
          all.merge<isa_type>(part, inverse_temperature_);
          part = {};
        });
    return all;
  }

  /// KL(from, to).
  double divergence(const divergence_sums& sums) const {
    return inverse_temperature_ * sums.differences / sums.from.powers +
           log_of_powers(sums.to.powers) - log_of_powers(sums.from.powers);
  }

  /// KL(teacher, mixture) or KL(student, mixture).
  double from_mixture(const token_place& at, const divergence_sums& sums, bool of_teacher) const {
    const log2_probabilities<isa_type> teacher(sums.from, factor_), student(sums.to, factor_);
    float_block s, t;
    double sum = 0;
    for_each_block<isa_type>(
        args_.tokens.classes, args_.tokens.parts, [&](std::int64_t first, int count) {
          load_block<isa_type>(args_.student, at, first, count, s);
          load_block<isa_type>(args_.teacher, at, first, count, t);
          sum += sum_of<isa_type>(count, [&](int i) {
            const reg of_s = student.at(s.at + i), of_t = teacher.at(t.at + i);
            const auto ratios = mixture_.at(of_s, of_t);
            const reg power = vec::exp2(of_teacher ? of_t : of_s);
            return where_likely<isa_type>(
                power, vec::mul(power, of_teacher ? ratios.teacher : ratios.student));
          });
        });
    return sum;
  }

  const kl_divergence_kernel_args& args_;
  const token_items<isa_type> items_;
  const double inverse_temperature_;
  const float factor_;  ///< log2(e) / temperature
  const mixture<isa_type> mixture_;
};

template <class Kernel>
class kl_divergence_forward : kl_divergence_rows<Kernel> {
  using base = kl_divergence_rows<Kernel>;
  using isa_type = typename base::isa_type;

 public:
  explicit kl_divergence_forward(const kl_divergence_kernel_args& args) : base(args) {}

  /// Sums of each work item.
  std::size_t workspace_bytes(int) const {
    return static_cast<std::size_t>(this->items_.count()) * sizeof(loss_totals);
  }

  void run(std::byte* workspace, int threads) const {
    const kl_divergence_kernel_args& args = this->args_;
    const loss_outputs<isa_type> outputs(args.tokens, args.teacher_entropy, nullptr);
    auto* const totals = reinterpret_cast<loss_totals*>(workspace);
    prim::parallel_items<isa_type>(this->items_.count(), threads, [&](std::int64_t item, int) {
      loss_totals own;
      this->items_.for_each(item, [&](const token_place& at, double weight) {
        if (weight == 0) return outputs.skip(at);
        outputs.add(own, at, weight, value(at));
      });
      totals[item] = own;
    });
    outputs.finish(totals, this->items_.count());
  }

 private:
  row_value value(const token_place& at) const {
    const kl_divergence_kernel_args& args = this->args_;
    const bool jsd = args.direction == kl_direction::jsd, reverse = this->is_reverse();
    const bool entropy = args.teacher_entropy.data != nullptr;
    const divergence_sums sums = this->sums_of_row(
        at,
        {.differences = !jsd, .from_energy = entropy && !reverse, .to_energy = entropy && reverse});
    const double square = args.temperature * args.temperature;
    row_value value;
    if (jsd) {
      value.loss = square * (args.beta * this->from_mixture(at, sums, true) +
                             (1 - args.beta) * this->from_mixture(at, sums, false));
    } else {
      value.loss = square * this->divergence(sums);
    }
    const softmax_sums& teacher = reverse ? sums.to : sums.from;
    if (entropy) {
      value.beside = square * (log_of_powers(teacher.powers) -
                               this->inverse_temperature_ * teacher.energy / teacher.powers);
    }
    return value;
  }
};

template <class Kernel>
class kl_divergence_backward : kl_divergence_rows<Kernel> {
  using base = kl_divergence_rows<Kernel>;
  using isa_type = typename base::isa_type;
  using vec = typename base::vec;
  using reg = typename base::reg;

 public:
  explicit kl_divergence_backward(const kl_divergence_kernel_args& args) : base(args) {}

  std::size_t workspace_bytes(int) const { return 0; }

  void run(std::byte*, int threads) const {
    const kl_divergence_kernel_args& args = this->args_;
    const loss_gradients<isa_type> gradients(args.tokens);
    prim::parallel_items<isa_type>(this->items_.count(), threads, [&](std::int64_t item, int) {
      this->items_.for_each(item, [&](const token_place& at, double weight) {
        if (weight == 0) return clear_row<isa_type>(args.d_student, at, args.tokens.classes);
        differentiate(at, gradients.of(at, weight) * args.temperature);
      });
    });
  }

 private:
  void differentiate(const token_place& at, double factor) const {
    const kl_divergence_kernel_args& args = this->args_;
    const bool reverse = this->is_reverse();
    const divergence_sums sums = this->sums_of_row(at, {.differences = reverse});
    const log2_probabilities<isa_type> student(reverse ? sums.from : sums.to, this->factor_),
        teacher(reverse ? sums.to : sums.from, this->factor_);
    switch (args.direction) {
      case kl_direction::forward: {
        const reg by = vec::broadcast(static_cast<float>(factor));
        return store_gradients(at, student, teacher, [&](reg of_student, reg of_teacher) {
          // Of equal logits nothing is left: both powers are the same number.
          return vec::mul(by, vec::sub(vec::exp2(of_student), vec::exp2(of_teacher)));
        });
      }
      case kl_direction::reverse: {
        const reg by = vec::broadcast(static_cast<float>(factor)), to_ln = vec::broadcast(ln_2),
                  divergence = vec::broadcast(static_cast<float>(this->divergence(sums)));
        return store_gradients(at, student, teacher, [&](reg of_student, reg of_teacher) {
          const reg ratio = vec::mul(vec::sub(of_student, of_teacher), to_ln);
          return weighted(of_student, vec::sub(ratio, divergence), by);
        });
      }
      case kl_direction::jsd: {
        const reg by = vec::broadcast(static_cast<float>(factor * (1 - args.beta))),
                  divergence =
                      vec::broadcast(static_cast<float>(this->from_mixture(at, sums, false)));
        return store_gradients(at, student, teacher, [&](reg of_student, reg of_teacher) {
          const reg ratio = this->mixture_.at(of_student, of_teacher).student;
          return weighted(of_student, vec::sub(ratio, divergence), by);
        });
      }
    }
  }

  /// by p x, and 0 where p is.
  static TESSERA_INLINE reg weighted(reg log2_of_p, reg x, reg by) {
    const reg p = vec::exp2(log2_of_p);
    return where_likely<isa_type>(p, vec::mul(vec::mul(by, p), x));
  }

  template <class Gradient>
  void store_gradients(const token_place& at, const log2_probabilities<isa_type>& student,
                       const log2_probabilities<isa_type>& teacher,
                       const Gradient& gradient) const {
    const kl_divergence_kernel_args& args = this->args_;
    float_block s, t;
    for_each_block<isa_type>(args.tokens.classes, 1, [&](std::int64_t first, int count) {
      load_block<isa_type>(args.student, at, first, count, s);
      load_block<isa_type>(args.teacher, at, first, count, t);
      for (int i = 0; i < count; i += vec::width) {
        vec::store(s.at + i, gradient(student.at(s.at + i), teacher.at(t.at + i)));
      }
      store_block<isa_type>(args.d_student, at, first, count, s);
    });
  }
};

}  // namespace tessera::kernels::losses::cpu
