// What becomes of tiles of logits: sums of each row, or gradients; and of the products of these.
// A thread has sums of two rows of the result, eight apart, and of columns 8 g + 2 q and the next,
// q being its lane in a quad: number 4 g + 2 half + i.
#pragma once

#include <cstdint>

#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/grouped_matmul/sm90/result.hpp>
#include <tessera/kernels/losses/sm80/entropy.hpp>
#include <tessera/kernels/losses/sm80/linear_rows.hpp>
#include <tessera/kernels/losses/sm90/chunks.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/tanh.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::losses::sm90 {

using grouped_matmul::sm90::result_rows;
using prim::finite_maximum;
using prim::minus_infinity;

/// Logits as products: where the chunk's classes begin, their bias, the cap.
struct logit_head {
  const void* bias = nullptr;  ///< of the chunk's first class on
  dtype bias_type = dtype::none;
  float soft_cap = 0;
  std::int64_t first = 0;

  template <int Sums>
  __device__ __forceinline__ void add_bias(const result_rows& rows, float (&x)[Sums]) const {
    if (bias == nullptr) return;
    prim::cuda::with_elements(bias, bias_type, [&](const auto* of_classes) {
#pragma unroll
      for (int i = 0; i < Sums / 2; ++i) {
        const std::int64_t column = rows.at.column + i / 2 * 8 + rows.quarter * 2 + i % 2;
        const float of_class =
            column < rows.args.columns ? prim::cuda::float_of(of_classes[column]) : 0.0f;
        x[i / 2 * 4 + i % 2] += of_class;
        x[i / 2 * 4 + 2 + i % 2] += of_class;
      }
    });
  }
  __device__ __forceinline__ float capped(float x) const {
    return soft_cap == 0 ? x : soft_cap * prim::cuda::tanh_fast(x / soft_cap);
  }
  /// The target's column as a thread counts them; far in front of them or behind them where it is
  /// in another tile.
  __device__ __forceinline__ int column_of(const result_rows& rows, std::int32_t target) const {
    const std::int64_t column = target - first - rows.at.column;
    return column >= 0 && column < tile_columns ? static_cast<int>(column) - rows.quarter * 2
                                                : elsewhere;
  }
  static constexpr int elsewhere = -tile_columns;
};

/// Calls visit(x, column) for the sums of one of a thread's rows. Columns are counted from the
/// thread's first one on, so that they are constants.
template <int Sums, class Visit>
__device__ __forceinline__ void for_each_of_row(int half, float (&sums)[Sums], const Visit& visit) {
#pragma unroll
  for (int i = 0; i < Sums / 2; ++i) {
    visit(sums[i / 2 * 4 + 2 * half + i % 2], i / 2 * 8 + i % 2);
  }
}

/// Device memory for sums of tiles.
struct tile_sums {
  float2* sums = nullptr;        ///< [tiles][tokens]: largest logit, powers relative to it
  float* differences = nullptr;  ///< [tiles][tokens]: where labels are smoothed
  float* of_target = nullptr;    ///< [tokens]
  float* before = nullptr;       ///< [tokens]: the largest left of the target in its tile
  std::int64_t tokens = 0;
};

/// Logits become sums of each row of a tile.
struct sum_logits {
  logit_head head;
  const std::int32_t* targets;  ///< of tokens that count
  tile_sums to;

  struct targets_of_rows {
    std::int32_t target[2];
  };
  __device__ __forceinline__ targets_of_rows begin(const result_rows& rows, bool wanted) const {
    const auto of = [&](int half) {
      return wanted && rows.exists(half) ? targets[rows.line(half)] : -1;
    };
    return {{of(0), of(1)}};
  }

  template <int Sums>
  __device__ __forceinline__ void finish(const result_rows& rows, const targets_of_rows& begun,
                                         float (&x)[Sums]) const {
    head.add_bias(rows, x);
    if (head.soft_cap != 0) {
#pragma unroll
      for (float& each : x) each = head.capped(each);
    }
    const bool whole = rows.at.column + Sums * 2 <= rows.args.columns;
    const int columns = static_cast<int>(rows.args.columns - rows.at.column) - rows.quarter * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!whole) {
        for_each_of_row(half, x, [&](float& each, int column) {
          if (column >= columns) each = minus_infinity;
        });
      }
      sum_row(rows, half, columns, x);
      const int target = head.column_of(rows, begun.target[half]);
      if (prim::cuda::any_of_warp(target != logit_head::elsewhere))
        look_at_target(rows, half, target, x);
    }
  }

 private:
  template <int Sums>
  __device__ __forceinline__ void sum_row(const result_rows& rows, int half, int columns,
                                          float (&x)[Sums]) const {
    float most[2] = {minus_infinity, minus_infinity}, sums[2] = {0, 0};
    for_each_of_row(
        half, x, [&](float each, int column) { most[column % 2] = fmaxf(each, most[column % 2]); });
    const float largest = prim::cuda::maximum_of_quad(fmaxf(most[0], most[1]));
    const float shift = finite_maximum(largest);
    for_each_of_row(half, x, [&](float each, int column) {
      sums[column % 2] += prim::cuda::exp2_fast((each - shift) * prim::log2_e);
    });
    const float powers = prim::cuda::sum_of_quad(sums[0] + sums[1]);
    float differences = 0;
    if (to.differences != nullptr) {
      float again = shift;
      asm volatile("" : "+f"(again));  // or all differences would be kept from above till here
      for_each_of_row(half, x, [&](float each, int column) {
        if (column < columns) differences += sm80::difference_of(each, again);
      });
      differences = prim::cuda::sum_of_quad(differences);
    }
    if (rows.quarter != 0 || !rows.exists(half)) return;
    const std::int64_t at = rows.at.column / (Sums * 2) * to.tokens + rows.line(half);
    to.sums[at] = make_float2(largest, powers);
    if (to.differences != nullptr) to.differences[at] = differences;
  }

  /// Keeps the logit of the target and the largest one in front of it.
  template <int Sums>
  __device__ __forceinline__ void look_at_target(const result_rows& rows, int half, int target,
                                                 float (&x)[Sums]) const {
    float before = minus_infinity;
    for_each_of_row(half, x, [&](float each, int column) {
      if (column == target) to.of_target[rows.line(half)] = each;
      if (column < target) before = fmaxf(each, before);
    });
    before = prim::cuda::maximum_of_quad(before);
    if (target != logit_head::elsewhere && rows.quarter == 0) to.before[rows.line(half)] = before;
  }
};

/// Stores sums as elements of a result whose rows are at multiples of 16 bytes, or of any.
template <class Element, int Sums>
__device__ __forceinline__ void store_rounded(const result_rows& rows, const float (&sums)[Sums]) {
  const auto bits = reinterpret_cast<std::uintptr_t>(rows.args.to.data) |
                    static_cast<std::uintptr_t>(rows.args.to.row * sizeof(Element));
  const bool aligned = bits % 16 == 0;
#pragma unroll
  for (int group = 0; group < Sums / 16; ++group) {
    const std::int64_t column = rows.at.column + group * 32;
    const float* const sum = sums + group * 16;
    if (aligned && column + 32 <= rows.args.columns) {
      grouped_matmul::sm90::store_eights<Element>(rows, column, sum);
    } else {
      rows.for_each(column, [&](int i, int half, std::int64_t at_column) {
        static_cast<Element*>(rows.args.to.data)[rows.offset(rows.args.to, half, at_column)] =
            prim::nearest<Element>(sum[i]);
      });
    }
  }
}

/// Logits become their gradients, as elements of the result.
template <class Element>
struct differentiate_logits {
  logit_head head;
  const sm80::linear_gradient* gradients;  ///< of tokens that count

  struct gradients_of_rows {
    sm80::logit_gradient of[2];
    std::int32_t target[2];
  };
  __device__ __forceinline__ gradients_of_rows begin(const result_rows& rows, bool wanted) const {
    gradients_of_rows begun;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      begun.of[half] = {};
      begun.target[half] = -1;
      if (!wanted || !rows.exists(half)) continue;
      const sm80::linear_gradient& of = gradients[rows.line(half)];
      begun.of[half] = of.of_logits;
      begun.target[half] = static_cast<std::int32_t>(of.target);
    }
    return begun;
  }

  template <int Sums>
  __device__ __forceinline__ void finish(const result_rows& rows, const gradients_of_rows& begun,
                                         float (&x)[Sums]) const {
    head.add_bias(rows, x);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const sm80::logit_gradient& own = begun.of[half];
      const int target = head.column_of(rows, begun.target[half]);
      if (head.soft_cap != 0) {
        for_each_of_row(half, x, [&](float& each, int column) {
          const float d_x = own.at(head.capped(each)) - (column == target ? own.at_target : 0.0f);
          each = d_x * sm80::slope_of_cap(each, head.soft_cap);
        });
        continue;
      }
      for_each_of_row(half, x, [&](float& each, int) { each = own.at(each); });
      if (!prim::cuda::any_of_warp(target != logit_head::elsewhere)) continue;
      for_each_of_row(half, x, [&](float& each, int column) {
        if (column == target) each -= own.at_target;
      });
    }
    store_rounded<Element>(rows, x);
  }
};

/// Sums are the result.
template <class Element>
struct store_sums {
  struct nothing {};
  __device__ __forceinline__ nothing begin(const result_rows&, bool) const { return {}; }
  template <int Sums>
  __device__ __forceinline__ void finish(const result_rows& rows, nothing,
                                         float (&sums)[Sums]) const {
    store_rounded<Element>(rows, sums);
  }
};

/// Sums are added to a result of floats whose rows are whole chunks of eight. An element is one
/// thread's, so no bit depends on their order.
struct add_sums {
  struct nothing {};
  __device__ __forceinline__ nothing begin(const result_rows&, bool) const { return {}; }
  template <int Sums>
  __device__ __forceinline__ void finish(const result_rows& rows, nothing,
                                         float (&sums)[Sums]) const {
    auto* const to = static_cast<float*>(rows.args.to.data);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!rows.exists(half)) continue;
      float* const row = to + rows.offset(rows.args.to, half, rows.at.column + rows.quarter * 2);
#pragma unroll
      for (int i = 0; i < Sums / 4; ++i) {
        if (rows.at.column + i * 8 >= rows.args.columns) continue;
        const float* const pair = sums + i * 4 + half * 2;
        // A store that nobody waits for: the sum is formed where the line is cached.
        asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(row + i * 8),
                     "f"(pair[0]), "f"(pair[1])
                     : "memory");
      }
    }
  }
};

}  // namespace tessera::kernels::losses::sm90
