// The definition of divergences between a student's and a teacher's logits, a token in double, and
// the size of the terms of each result; see losses.hpp.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

#include <tessera/families/losses/kl_divergence_options.hpp>

#include "losses.hpp"

namespace tessera::reference {

/// Loss of a token, and the student's gradient for a loss whose gradient is `factor`.
struct token_divergence {
  double loss = 0, loss_size = 0, entropy = 0, entropy_size = 0;
  sized_numbers d_student;
};

class divergence_of_token {
 public:
  divergence_of_token(std::span<const double> student, std::span<const double> teacher,
                      const kl_divergence_options& options)
      : options_(options),
        student_(student, 1 / options.temperature),
        teacher_(teacher, 1 / options.temperature) {}

  token_divergence evaluate(double factor) const {
    const double square = options_.temperature * options_.temperature;
    token_divergence result;
    const std::size_t classes = student_.differences.size();
    result.d_student.resize(classes);
    sized value = divergence(student_, teacher_);
    if (options_.direction == kl_direction::forward) value = divergence(teacher_, student_);
    sized of_student;
    if (options_.direction == kl_direction::jsd) {
      of_student = from_mixture(student_);
      const sized of_teacher = from_mixture(teacher_);
      value = {options_.beta * of_teacher.value + (1 - options_.beta) * of_student.value,
               of_teacher.size + of_student.size};
    }
    result.loss = square * value.value;
    result.loss_size = square * value.size;
    for (std::size_t v = 0; v < classes; ++v) {
      const double p = teacher_.probability(v);
      if (p == 0) continue;
      result.entropy -= square * p * teacher_.log_probability(v);
      result.entropy_size += square * p * size_of_log(teacher_, v);
    }
    result.entropy_size += square;
    const sized& row = options_.direction == kl_direction::jsd ? of_student : value;
    for (std::size_t v = 0; v < classes; ++v) {
      const sized slope = slope_at(v, row);
      result.d_student.values[v] = factor * options_.temperature * slope.value;
      result.d_student.sizes[v] = std::fabs(factor) * options_.temperature * slope.size;
    }
    return result;
  }

 private:
  struct sized {
    double value = 0;
    double size = 0;
  };

  static double size_of_log(const log_softmax& of, std::size_t v) {
    return 1 + std::fabs(of.differences[v]) + std::fabs(of.log_sum);
  }

  /// Logarithm of the mixture's probability.
  double log_mixture(std::size_t v) const {
    return std::log(options_.beta * teacher_.probability(v) +
                    (1 - options_.beta) * student_.probability(v));
  }
  /// What the logarithm of a share of the mixture is made of.
  double size_of_mixture() const {
    return 1 + std::fabs(std::log(options_.beta)) + std::fabs(std::log1p(-options_.beta));
  }

  static sized divergence(const log_softmax& from, const log_softmax& to) {
    sized sum;
    for (std::size_t v = 0; v < from.differences.size(); ++v) {
      const double p = from.probability(v);
      if (p == 0) continue;
      sum.value += p * (from.log_probability(v) - to.log_probability(v));
      sum.size += p * (size_of_log(from, v) + size_of_log(to, v));
    }
    return sum;
  }
  sized from_mixture(const log_softmax& of) const {
    sized sum;
    for (std::size_t v = 0; v < of.differences.size(); ++v) {
      const double p = of.probability(v);
      if (p == 0) continue;
      sum.value += p * (of.log_probability(v) - log_mixture(v));
      sum.size += p * (size_of_mixture() + size_of_log(of, v));
    }
    return sum;
  }

  /// The derivative by a student's logit over the temperature, without its factor; `row` is the
  /// divergence of the student where that has a part in it.
  sized slope_at(std::size_t v, const sized& row) const {
    const double own = student_.probability(v), other = teacher_.probability(v);
    if (options_.direction == kl_direction::forward) return {own - other, own + other};
    if (own == 0) return {};
    if (options_.direction == kl_direction::reverse) {
      const double ratio = student_.log_probability(v) - teacher_.log_probability(v);
      return {own * (ratio - row.value),
              own * (size_of_log(student_, v) + size_of_log(teacher_, v) + row.size)};
    }
    const double share = (1 - options_.beta) * own;
    return {share * (student_.log_probability(v) - log_mixture(v) - row.value),
            share * (size_of_mixture() + size_of_log(student_, v) + row.size)};
  }

  const kl_divergence_options& options_;
  log_softmax student_, teacher_;
};

}  // namespace tessera::reference
