// The columns of a state that a warpgroup has, 64 of them, transposed: in registers from the first
// token to the last. How they come and go, how they are read and added to, their values, and their
// answers.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_memory.hpp>
#include <tessera/kernels/delta_rule/sm90/panels.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::delta_rule::sm90 {

/// Columns 16 i on of sums, rounded, as operand A.
template <class Element, int Count>
__device__ __forceinline__ prim::cuda::warpgroup_a operand_of(const float (&sums)[Count], int i) {
  using words = prim::cuda::half_words<Element>;
  return {{words::pack(sums[8 * i], sums[8 * i + 1]), words::pack(sums[8 * i + 2], sums[8 * i + 3]),
           words::pack(sums[8 * i + 4], sums[8 * i + 5]),
           words::pack(sums[8 * i + 6], sums[8 * i + 7])}};
}

/// sums += 0 x of pairs of elements: NaN from one on that is not finite.
template <class Element>
__device__ __forceinline__ void add_no_times(std::uint32_t& sums, std::uint32_t x) {
  if constexpr (std::is_same_v<Element, bf16>) {
    asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(sums) : "r"(x), "r"(0u));
  } else {
    asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(sums) : "r"(x), "r"(0u));
  }
}

/// `Memory` has `first_not_finite` and `rows_out`.
template <class Element, class Memory>
class state_columns {
 protected:
  using shape = typename Memory::shape;
  using words = prim::cuda::half_words<Element>;
  using key_rows = typename shape::key_rows;
  using value_rows = typename shape::value_rows;
  using weight_rows = typename shape::weight_rows;
  using state_sums = float[shape::keys / 2];
  static constexpr int steps = shape::tokens / 16;

  __device__ __forceinline__ state_columns(const delta_rule_kernel_args& args, Memory& shared,
                                           std::int64_t column)
      : args_(args), shared_(shared), column_(column) {
    warp_ = (static_cast<int>(threadIdx.x) - shape::first_walker) / 32;
    lane_ = static_cast<int>(threadIdx.x) % 32;
  }

  /// From the states in front of a sequence, whose columns are `step` apart, to those behind it,
  /// which `body(state)` takes it to.
  template <class Body>
  __device__ __forceinline__ void with_state(const sequence& all, std::int64_t head,
                                             const Body& body, std::int64_t step = 1) const {
    state_sums state;
#pragma unroll
    for (float& x : state) x = 0.0f;
    const auto initial = initial_states<device_code>(args_, all);
    if (initial.data != nullptr) {
      prim::cuda::with_elements(initial.data, initial.type, [&](const auto* elements) {
        const auto* const own = elements + all.slot * initial.sequence + head * initial.head;
        for_each_element(state, own, initial.channel, step,
                         [](float& x, const auto* at) { x = prim::cuda::float_of(*at); });
      });
    }
    body(state);
    const auto& last = args_.last;
    if (last.data == nullptr) return;
    prim::cuda::with_elements(last.data, last.type, [&](auto* elements) {
      using element = std::remove_pointer_t<decltype(elements)>;
      auto* const own = elements + all.slot * last.sequence + head * last.head;
      for_each_element(state, own, last.channel, 1,
                       [](float& x, auto* at) { *at = prim::nearest<element>(x); });
    });
  }

  /// The same of a scan of gradients; body(state) gives what the state decays by behind it.
  template <class Body>
  __device__ __forceinline__ void with_scan(const sequence& all, std::int64_t head,
                                            const back_scan& back, const Body& body) const {
    with_state(
        all, head,
        [&](state_sums& state) {
          // A state that no token touches goes through bit by bit.
          const bool is_touched = all.length > 0;
          multiply_all(state, is_touched ? back.initial_scale : 1.0f);
          const float behind = body(state);
          multiply_all(state, is_touched ? behind * back.final_scale : 1.0f);
        },
        back.initial_column);
  }

  /// Values of the warp's columns, transposed.
  __device__ __forceinline__ void load_values(const unsigned char* rows,
                                              prim::cuda::warpgroup_a (&values)[steps]) const {
    const std::uint32_t v = prim::cuda::shared_address(rows);
    const auto lane = static_cast<std::uint32_t>(lane_);
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      // Tiles of tokens and columns: (0, 0), (0, 8), (8, 0), (8, 8).
      std::uint32_t(&word)[4] = values[i].word;
      prim::cuda::load_matrices_transposed(
          word,
          v + value_rows::offset(static_cast<std::uint32_t>(i) * 16 + lane / 16 * 8 + lane % 8,
                                 static_cast<std::uint32_t>(warp_) * 2 + lane / 8 % 2));
    }
  }
  /// What is not finite becomes 0, which earlier tokens alone may see; the first such token of a
  /// column is noted if it lies before `end`.
  __device__ __forceinline__ bool remove_not_finite(prim::cuda::warpgroup_a (&values)[steps],
                                                    int end) const {
    std::uint32_t zeros[4] = {};
#pragma unroll
    for (const auto& of_step : values) {
#pragma unroll
      for (int i = 0; i < 4; ++i) add_no_times<Element>(zeros[i], of_step.word[i]);
    }
    // A zero may have a sign.
    const bool any = ((zeros[0] | zeros[1] | zeros[2] | zeros[3]) & 0x7fff7fffu) != 0;
    if (!prim::cuda::any_of_warp(any)) return true;
#pragma unroll
    for (int i = 0; i < 4 * steps; ++i) {
      std::uint32_t& word = values[i / 4].word[i % 4];
      if (!prim::cuda::any_not_finite<Element>(word)) continue;
      const bool upper = !prim::cuda::any_not_finite<Element>(word & 0xffffu);
      const int at = i / 2 * 8 + lane_ % 4 * 2 + (upper ? 1 : 0);
      if (at < end) {
        atomicMin(&shared_.first_not_finite[warp_ * 16 + i % 2 * 8 + lane_ / 4], at);
      }
      word = prim::cuda::finite_only<Element>(word);
    }
    __syncwarp();
    return false;
  }
  /// Starts to read the state: `rows`, with a correction, to `written`, or added to what is there,
  /// then queries to `answers`; a group of products each.
  static __device__ __forceinline__ void read_state(const state_sums& state,
                                                    const unsigned char* rows,
                                                    const unsigned char* queries, bool adds,
                                                    float (&written)[32], float (&answers)[32]) {
    const std::uint64_t q = describe_rows<key_rows>(queries), k = describe_rows<key_rows>(rows);
    // Packing between products would make them wait for each other.
    prim::cuda::warpgroup_a read[shape::keys / 16];
#pragma unroll
    for (int i = 0; i < shape::keys / 16; ++i) read[i] = operand_of<Element>(state, i);
    prim::cuda::begin_products();
    if constexpr (shape::corrects) {
#pragma unroll
      for (int i = 0; i < shape::keys / 16; ++i) {
        rows_product(written, read[i], key_rows::along(k, i), adds || i > 0);
      }
      prim::cuda::commit_products();
    }
#pragma unroll
    for (int i = 0; i < shape::keys / 16; ++i) {
      rows_product(answers, read[i], key_rows::along(q, i), i > 0);
    }
    prim::cuda::commit_products();
  }
  /// Starts to multiply values with M beta, a group of products.
  static __device__ __forceinline__ void begin_inverse(
      float (&written)[32], const prim::cuda::warpgroup_a (&values)[steps],
      const unsigned char* rows) {
    const std::uint64_t inverse = describe_rows<weight_rows>(rows);
    prim::cuda::begin_products();
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      rows_product(written, values[i], weight_rows::along(inverse, i), i > 0);
    }
    prim::cuda::commit_products();
  }
  /// Adds P `values` to the answers of an item, and keys times `left` to the state. `finite`: all
  /// numbers of the item's tokens were.
  template <class Item>
  __device__ __forceinline__ void add_tokens(state_sums& state, float (&answers)[32],
                                             const Item& item, const item_tokens& tokens,
                                             const prim::cuda::warpgroup_a (&values)[steps],
                                             const prim::cuda::warpgroup_a (&left)[steps],
                                             bool finite) const {
    const std::uint64_t k = describe_rows<key_rows>(item.k),
                        weights = describe_rows<weight_rows>(item.weights);
    prim::cuda::begin_products();
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      rows_product(answers, values[i], weight_rows::along(weights, i), true);
    }
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      prim::cuda::warpgroup_product<Element, shape::keys>::sums_of(state, left[i],
                                                                   key_rows::across(k, i));
    }
    prim::cuda::commit_products();
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(answers);
    prim::cuda::keep_in_place(state);
    finite = finite && tokens.poison >= shape::tokens;
    if (!finite) mark_not_finite(state, answers, tokens.poison);
  }
  /// The factors of two columns of accumulator `tile`.
  __device__ __forceinline__ float2 pair_of(const float* factors, int tile) const {
    return *reinterpret_cast<const float2*>(factors + tile * 8 + lane_ % 4 * 2);
  }
  /// Columns of sums times their factors.
  template <int Count>
  __device__ __forceinline__ void multiply_columns(float (&sums)[Count],
                                                   const float* factors) const {
#pragma unroll
    for (int i = 0; i < Count / 4; ++i) {
      const float2 factor = pair_of(factors, i);
      sums[4 * i] *= factor.x;
      sums[4 * i + 1] *= factor.y;
      sums[4 * i + 2] *= factor.x;
      sums[4 * i + 3] *= factor.y;
    }
  }
  static __device__ __forceinline__ void multiply_all(state_sums& state, float factor) {
#pragma unroll
    for (float& x : state) x *= factor;
  }
  __device__ __forceinline__ void mark_not_finite(state_sums& state, float (&answers)[32],
                                                  int poison) const {
    const float nan = __int_as_float(0x7fc00000);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int& noted = shared_.first_not_finite[warp_ * 16 + half * 8 + lane_ / 4];
      const int first = min(noted, poison);
      __syncwarp();
      noted = shape::tokens;
      if (first >= shape::tokens) continue;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const int token = n * 8 + lane_ % 4 * 2;
        if (token >= first) answers[4 * n + 2 * half] = nan;
        if (token + 1 >= first) answers[4 * n + 2 * half + 1] = nan;
      }
#pragma unroll
      for (int n = 0; n < shape::keys / 8; ++n) {
        state[4 * n + 2 * half] = state[4 * n + 2 * half + 1] = nan;
      }
    }
    __syncwarp();
  }

  /// Answers times `scale` to memory, through the values, so that a warp has whole lines of it: its
  /// share of the rows of all columns of the warpgroup.
  __device__ __forceinline__ void store(unsigned char* staging, const item_tokens& tokens,
                                        float scale, const float (&answers)[32]) const {
    const std::uint32_t staged = prim::cuda::shared_address(staging);
    const auto lane = static_cast<std::uint32_t>(lane_);
    const std::uint32_t own = static_cast<std::uint32_t>(warp_) * 2;
    if constexpr (shape::low_rank) {
      wait_for_warpgroup();  // All have stored the last answers from their rows.
    } else {
      __syncwarp();  // The lanes have read the values whose place this takes.
    }
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      const float* const x = answers + 4 * n;
      const std::uint32_t word[4] = {
          words::pack(scale * x[0], scale * x[1]), words::pack(scale * x[2], scale * x[3]),
          words::pack(scale * x[4], scale * x[5]), words::pack(scale * x[6], scale * x[7])};
      store_matrices_transposed(
          staged + value_rows::offset(static_cast<std::uint32_t>(n) * 8 + lane / 16 * 8 + lane % 8,
                                      own + lane / 8 % 2),
          word);
    }
    wait_for_warpgroup();
    const std::int64_t first = column_ + warp_ / 4 * 64 + lane % 8 * 8;
    const auto left = static_cast<int>(min(args_.value_dim - first, std::int64_t{8}));
    const ordered_rows rows = shared_.rows_out;
    auto* const out = static_cast<Element*>(args_.out.data) + first;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = warp_ % 4 * 16 + i * 4 + lane_ / 8;
      if (row < tokens.first || row >= tokens.end) continue;
      const unsigned char* const from =
          staging + value_rows::offset(static_cast<std::uint32_t>(row),
                                       static_cast<std::uint32_t>(warp_) / 4 * 8 + lane % 8);
      Element* const to = out + rows.at(tokens.token + row);
      if (left == 8) {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
      } else {
#pragma unroll 1
        for (int j = 0; j < left; ++j) {
          to[j].bits = reinterpret_cast<const std::uint16_t*>(from)[j];
        }
      }
    }
    __syncwarp();
  }

  /// Answers times `scale` to memory, those of shares as they are.
  __device__ __forceinline__ void store_gradients(unsigned char* staging, const item_tokens& tokens,
                                                  float scale, const float (&answers)[32]) const {
    if (args_.out.type == dtype::f32) {
      store_singles(tokens, scale, answers);
    } else {
      store(staging, tokens, scale, answers);
    }
  }
  /// Answers as numbers of f32, as sums of several heads take them.
  __device__ __forceinline__ void store_singles(const item_tokens& tokens, float scale,
                                                const float (&answers)[32]) const {
    const ordered_rows rows = shared_.rows_out;
    const std::int64_t column = own_column() + lane_ / 4;
    auto* const out = static_cast<float*>(args_.out.data) + column;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int token = i / 2 * 8 + lane_ % 4 * 2 + i % 2;
      if (token < tokens.first || token >= tokens.end) continue;
      float* const to = out + rows.at(tokens.token + token);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (column + 8 * half >= args_.value_dim) continue;
        to[8 * half] = scale * answers[i / 2 * 4 + 2 * half + i % 2];
      }
    }
    __syncwarp();
  }

  const delta_rule_kernel_args& args_;
  Memory& shared_;
  std::int64_t column_;
  int warp_, lane_;

 private:
  /// Calls body(x, at) for each element that the state has, channels `step` apart, columns
  /// `across`.
  template <class Stored, class Body>
  __device__ __forceinline__ void for_each_element(state_sums& state, Stored* elements,
                                                   std::int64_t step, std::int64_t across,
                                                   const Body& body) const {
    int left = static_cast<int>(args_.key_dim) - lane_ % 4 * 2;
    const std::int64_t column = own_column() + lane_ / 4;
    const bool has[2] = {column < args_.value_dim, column + 8 < args_.value_dim};
    Stored* next = elements + lane_ % 4 * 2 * step + column * across;
#pragma unroll
    for (int n = 0; n < shape::keys / 8; ++n, left -= 8) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (i % 2 < left && has[i / 2])
          body(state[4 * n + i], next + i % 2 * step + i / 2 * 8 * across);
      }
      next += 8 * step;
    }
  }
  __device__ __forceinline__ void wait_for_warpgroup() const {
    prim::cuda::wait_for_threads(3 + warp_ / 4, 128);
  }
  /// The first of the warp's 16 columns.
  __device__ __forceinline__ std::int64_t own_column() const {
    return column_ + warp_ * 16;
  }
};

}  // namespace tessera::kernels::delta_rule::sm90
