// Divergences of a student's logits from a teacher's, and the student's gradients: a block, or a
// warp where rows are short, has a token's rows. What is read again comes from shared memory as far
// as that reaches, and else from a cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/losses/sm80/divergence.hpp>
#include <tessera/kernels/losses/sm80/row_launch.hpp>
#include <tessera/kernels/losses/sm80/row_units.hpp>
#include <tessera/kernels/losses/sm80/tokens.hpp>

namespace tessera::kernels::losses::sm80 {

/// The rows of a token.
class divergence_rows {
 public:
  __device__ __forceinline__ divergence_rows(const kl_divergence_kernel_args& args,
                                             const token_place& at, uint4* words, int kept_units)
      : units(args.student, at, args.tokens.classes),
        student_(args.student, at, units),
        teacher_(args.teacher, at, units),
        kept_units_(kept_units),
        kept_student_(words, args.student.type, kept_units),
        kept_teacher_(words + kept_units * unit_size / (args.student.type == dtype::f32 ? 4 : 8),
                      args.teacher.type, kept_units) {}

  __device__ __forceinline__ void load(std::int64_t unit, float (&s)[unit_size],
                                       float (&t)[unit_size]) const {
    student_.load(units, units.first(unit), minus_infinity, s);
    teacher_.load(units, units.first(unit), minus_infinity, t);
  }
  /// The first time, of a row that is read again.
  __device__ __forceinline__ void load_and_keep(std::int64_t unit, float (&s)[unit_size],
                                                float (&t)[unit_size]) const {
    load(unit, s, t);
    if (unit >= kept_units_) return;
    kept_student_.put(unit, s);
    kept_teacher_.put(unit, t);
  }
  __device__ __forceinline__ void load_again(std::int64_t unit, float (&s)[unit_size],
                                             float (&t)[unit_size]) const {
    if (unit >= kept_units_) return load(unit, s, t);
    kept_student_.get(unit, s);
    kept_teacher_.get(unit, t);
  }

  const row_units units;

 private:
  unit_row student_, teacher_;
  int kept_units_;
  kept_row kept_student_, kept_teacher_;
};

/// The sums of a token's rows, the same for all of a team.
__device__ __forceinline__ divergence_sums sums_of_rows(const row_team& team,
                                                        const divergence_rows& rows, bool reverse,
                                                        float factor, bool energies) {
  divergence_sums sums;
  sums.factor = factor;
  for (std::int64_t unit = team.thread; unit < rows.units.count; unit += team.threads) {
    float s[unit_size], t[unit_size];
    rows.load_and_keep(unit, s, t);
    if (reverse) {
      sums.add(s, t, energies);
    } else {
      sums.add(t, s, energies);
    }
  }
  return sums_of_team(team, sums);
}

/// KL(student, mixture) and KL(teacher, mixture).
__device__ __forceinline__ mixture_sums mixture_of_rows(const row_team& team,
                                                        const divergence_rows& rows,
                                                        const divergence_terms& terms,
                                                        const log2_probabilities& student,
                                                        const log2_probabilities& teacher) {
  mixture_sums sums;
  for (std::int64_t unit = team.thread; unit < rows.units.count; unit += team.threads) {
    float s[unit_size], t[unit_size];
    rows.load_again(unit, s, t);
#pragma unroll
    for (int i = 0; i < unit_size; ++i) sums.add(terms, student.at(s[i]), teacher.at(t[i]));
  }
  return sums_of_team(team, sums);
}

/// `Mixture`: both are measured against it.
template <bool Mixture>
__global__ void __launch_bounds__(512, 2)
    divergence_values(const kl_divergence_kernel_args args, const divergence_terms terms,
                      const bool by_warp, const int kept_units, token_value* values) {
  extern __shared__ uint4 kept_words[];
  const row_team team(by_warp);
  const std::int64_t row = team.row();
  if (row >= count_of(args.tokens)) return;
  const token_place at(args.tokens, row);
  const double weight = weight_of(args.tokens, at);
  if (weight == 0) {
    if (team.is_first()) put_value(args.tokens, args.teacher_entropy, at, row, {}, values);
    return;
  }
  const bool reverse = args.direction == kl_direction::reverse;
  const divergence_rows rows(args, at, kept_words, kept_units);
  const divergence_sums sums =
      sums_of_rows(team, rows, reverse, terms.factor, args.teacher_entropy.data != nullptr);
  const softmax_sums of_student = reverse ? sums.from : sums.to;
  const softmax_sums of_teacher = reverse ? sums.to : sums.from;
  mixture_sums mixture;
  if constexpr (Mixture) {
    mixture =
        mixture_of_rows(team, rows, terms, {of_student, terms.factor}, {of_teacher, terms.factor});
  }
  if (!team.is_first()) return;
  const double loss = Mixture ? terms.beta * static_cast<double>(mixture.teacher) +
                                    (1 - terms.beta) * static_cast<double>(mixture.student)
                              : sums.divergence(terms.inverse_temperature);
  const auto powers = static_cast<double>(of_teacher.powers);
  const double entropy = args.teacher_entropy.data == nullptr
                             ? 0
                             : log(powers) - terms.inverse_temperature *
                                                 static_cast<double>(of_teacher.energy) / powers;
  put_value(args.tokens, args.teacher_entropy, at, row,
            {.loss = weight * terms.square * loss,
             .beside = weight * terms.square * entropy,
             .weight = weight},
            values);
}

/// `Mixture`: both are measured against it.
template <bool Mixture>
__global__ void __launch_bounds__(512, 2)
    divergence_gradients(const kl_divergence_kernel_args args, const divergence_terms terms,
                         const bool by_warp, const int kept_units, const double* weight_sum) {
  extern __shared__ uint4 kept_words[];
  const row_team team(by_warp);
  const std::int64_t row = team.row();
  if (row >= count_of(args.tokens)) return;
  const token_place at(args.tokens, row);
  const double weight = weight_of(args.tokens, at);
  const divergence_rows rows(args, at, kept_words, kept_units);
  const unit_row d_student(args.d_student, at, rows.units);
  if (weight == 0) {
    for (std::int64_t unit = team.thread; unit < rows.units.count; unit += team.threads) {
      d_student.clear(rows.units, rows.units.first(unit));
    }
    return;
  }
  const bool reverse = args.direction == kl_direction::reverse;
  const divergence_sums sums = sums_of_rows(team, rows, reverse, terms.factor, false);
  const log2_probabilities student(reverse ? sums.from : sums.to, terms.factor);
  const log2_probabilities teacher(reverse ? sums.to : sums.from, terms.factor);
  float divergence = 0;  // of the student, where that has a part in its gradient
  if (reverse) divergence = static_cast<float>(sums.divergence(terms.inverse_temperature));
  if constexpr (Mixture) divergence = mixture_of_rows(team, rows, terms, student, teacher).student;
  const double factor = gradient_factor(args.tokens, at, weight, weight_sum) * args.temperature *
                        (Mixture ? 1 - terms.beta : 1);
  const auto by = static_cast<float>(factor);
  for (std::int64_t unit = team.thread; unit < rows.units.count; unit += team.threads) {
    float s[unit_size], t[unit_size];
    rows.load_again(unit, s, t);
#pragma unroll
    for (int i = 0; i < unit_size; ++i) {
      const float of_student = student.at(s[i]), of_teacher = teacher.at(t[i]);
      const float p = prim::cuda::exp2_fast(of_student);
      if (!reverse && !Mixture) {
        // Of equal logits nothing is left: both powers are the same number.
        s[i] = by * (p - prim::cuda::exp2_fast(of_teacher));
      } else {
        const float ratio = Mixture ? mixture_ratios(terms, of_student, of_teacher).student
                                    : (of_student - of_teacher) * ln_2;
        s[i] = is_likely(p) ? by * p * (ratio - divergence) : 0.0f;
      }
    }
    d_student.store(rows.units, rows.units.first(unit), s);
  }
}

/// A launch of either direction.
template <bool Backward>
class kl_divergence_row {
 public:
  kl_divergence_row(const losses_kernel_args& args, std::byte* workspace)
      : args_(args.kl_divergence), memory_(args_.tokens, Backward, workspace) {}

  static auto entries() {
    if constexpr (Backward) {
      return std::array{cuda::entry_of(&divergence_gradients<false>, most_kept_bytes),
                        cuda::entry_of(&divergence_gradients<true>, most_kept_bytes),
                        cuda::entry_of(&total_weights)};
    } else {
      return std::array{cuda::entry_of(&divergence_values<false>, most_kept_bytes),
                        cuda::entry_of(&divergence_values<true>, most_kept_bytes),
                        cuda::entry_of(&total_values)};
    }
  }
  std::size_t bytes() const { return memory_.bytes; }

  cudaError_t launch(cudaStream_t stream) const {
    const divergence_terms terms = divergence_terms::of(args_);
    const bool mixture = args_.direction == kl_direction::jsd;
    row_launch rows(args_.tokens, stream);
    if constexpr (Backward) {
      const row_grid grid = row_grid::of_kept(args_.tokens, args_.student.type, args_.teacher.type);
      rows.sum_weights(memory_);
      rows.run(mixture ? &divergence_gradients<true> : &divergence_gradients<false>, grid, args_,
               terms, grid.by_warp, grid.kept_units,
               static_cast<const double*>(memory_.weight_sum));
    } else {
      const row_grid grid =
          mixture ? row_grid::of_kept(args_.tokens, args_.student.type, args_.teacher.type)
                  : row_grid::of(args_.tokens, 256, 16384);
      rows.run(mixture ? &divergence_values<true> : &divergence_values<false>, grid, args_, terms,
               grid.by_warp, grid.kept_units, memory_.values);
      rows.total(memory_, args_.teacher_entropy, nullptr);
    }
    return rows.code();
  }

 private:
  const kl_divergence_kernel_args& args_;
  row_memory memory_;
};

}  // namespace tessera::kernels::losses::sm80
