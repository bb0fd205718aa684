// The warpgroups that have the columns of states, 64 each, transposed: in registers from the first
// token to the last. Of an item
//
//   d = M beta v - (M beta k) S      out = q S + P d      S <- S + k^T d
//
// with the state and d, rounded, as operands in registers.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_memory.hpp>
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

template <class Element, class Shape>
class state_walker {
  using memory = walk_memory<Shape>;
  using words = prim::cuda::half_words<Element>;
  using key_rows = typename Shape::key_rows;
  using value_rows = typename Shape::value_rows;
  using weight_rows = typename Shape::weight_rows;
  static constexpr int steps = Shape::tokens / 16;

 public:
  __device__ __forceinline__ state_walker(const delta_rule_kernel_args& args, memory& shared,
                                          std::int64_t column)
      : args_(args), shared_(shared), column_(column) {
    warp_ = (static_cast<int>(threadIdx.x) - Shape::maker_threads) / 32;
    lane_ = static_cast<int>(threadIdx.x) % 32;
  }

  /// From the states in front of a sequence to those behind it.
  __device__ __forceinline__ void walk(const sequence& all, std::int64_t head) {
    float state[Shape::keys / 2];
#pragma unroll
    for (float& x : state) x = 0.0f;
    const auto initial = initial_states<device_code>(args_, all);
    if (initial.data != nullptr) {
      prim::cuda::with_elements(initial.data, initial.type, [&](const auto* elements) {
        const auto* const own = elements + all.slot * initial.sequence + head * initial.head;
        for_each_element(state, own, initial.channel,
                         [](float& x, const auto* at) { x = prim::cuda::float_of(*at); });
      });
    }
    go_through(state);
    const auto& last = args_.last;
    if (last.data == nullptr) return;
    prim::cuda::with_elements(last.data, last.type, [&](auto* elements) {
      using element = std::remove_pointer_t<decltype(elements)>;
      auto* const own = elements + all.slot * last.sequence + head * last.head;
      for_each_element(state, own, last.channel,
                       [](float& x, auto* at) { *at = prim::nearest<element>(x); });
    });
  }

 private:
  /// Calls body(x, at) for each element that the state has, channels `step` apart.
  template <class Stored, class Body>
  __device__ __forceinline__ void for_each_element(float (&state)[Shape::keys / 2],
                                                   Stored* elements, std::int64_t step,
                                                   const Body& body) const {
    int left = static_cast<int>(args_.key_dim) - lane_ % 4 * 2;
    const std::int64_t column = own_column() + lane_ / 4;
    const bool has[2] = {column < args_.value_dim, column + 8 < args_.value_dim};
    Stored* next = elements + lane_ % 4 * 2 * step + column;
#pragma unroll
    for (int n = 0; n < Shape::keys / 8; ++n, left -= 8) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (i % 2 < left && has[i / 2]) body(state[4 * n + i], next + i % 2 * step + i / 2 * 8);
      }
      next += 8 * step;
    }
  }
  /// The first of the warp's 16 columns.
  __device__ __forceinline__ std::int64_t own_column() const {
    return column_ + warp_ * 16;
  }

  /// The state goes through all items; answers are stored.
  __device__ __forceinline__ void go_through(float (&state)[Shape::keys / 2]) {
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.ring);
    prim::cuda::ring_place<Shape::stages> ring;
    for (;; ring.advance()) {
      ring.wait_full(barriers);
      const item_facts<Shape>& facts = shared_.facts[ring.stage()];
      multiply_channels(state, facts.factors);
      const item_tokens tokens = facts.tokens;
      if (tokens.end == 0) break;
      walk_item<Shape>& item = shared_.items[ring.stage()];
      float answers[32];
      take_item(state, item, tokens, answers);
      store(item.v, tokens, answers);
      ring.release(barriers);
    }
  }

  __device__ __forceinline__ void multiply_channels(float (&state)[Shape::keys / 2],
                                                    const float* factors) const {
#pragma unroll
    for (int n = 0; n < Shape::keys / 8; ++n) {
      const float2 factor = *reinterpret_cast<const float2*>(factors + n * 8 + lane_ % 4 * 2);
      state[4 * n] *= factor.x;
      state[4 * n + 1] *= factor.y;
      state[4 * n + 2] *= factor.x;
      state[4 * n + 3] *= factor.y;
    }
  }

  __device__ __forceinline__ void take_item(float (&state)[Shape::keys / 2], walk_item<Shape>& item,
                                            const item_tokens& tokens, float (&answers)[32]) {
    prim::cuda::warpgroup_a added[steps];
    bool finite = true;
    if constexpr (Shape::corrects) {
      float written[32];
      finite = add_values(item, tokens.end, written);
      read_state(state, item, written, answers);
#pragma unroll
      for (int i = 0; i < steps; ++i) added[i] = operand_of<Element>(written, i);
      finite = remove_not_finite(added, tokens.end) && finite;
    } else {
      float not_written[32];
      read_state(state, item, not_written, answers);
      finite = load_values(item, tokens.end, added);
    }
    const std::uint64_t k = describe<key_rows>(item.k),
                        weights = describe<weight_rows>(item.weights);
    prim::cuda::begin_products();
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      rows_product(answers, added[i], weight_rows::along(weights, i), true);
    }
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      prim::cuda::warpgroup_product<Element, Shape::keys>::sums_of(state, added[i],
                                                                   key_rows::across(k, i));
    }
    prim::cuda::commit_products();
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(answers);
    prim::cuda::keep_in_place(state);
    finite = finite && tokens.poison >= Shape::tokens;
    if (!finite) mark_not_finite(state, answers, tokens.poison);
  }

  /// M beta v; whether all values of tokens before `end` are finite.
  __device__ __forceinline__ bool add_values(const walk_item<Shape>& item, int end,
                                             float (&written)[32]) const {
    const std::uint64_t inverse = describe<weight_rows>(item.inverse);
    prim::cuda::warpgroup_a values[steps];
    const bool finite = load_values(item, end, values);
    prim::cuda::begin_products();
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      rows_product(written, values[i], weight_rows::along(inverse, i), i > 0);
    }
    prim::cuda::commit_products();
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(written);
    return finite;
  }
  /// What the state holds for the tokens is taken away from `written`; queries read it, which may
  /// be under way behind the call.
  __device__ __forceinline__ void read_state(const float (&state)[Shape::keys / 2],
                                             const walk_item<Shape>& item, float (&written)[32],
                                             float (&answers)[32]) const {
    const std::uint64_t q = describe<key_rows>(item.q), held = describe<key_rows>(item.held);
    // Packing between products would make them wait for each other.
    prim::cuda::warpgroup_a read[Shape::keys / 16];
#pragma unroll
    for (int i = 0; i < Shape::keys / 16; ++i) read[i] = operand_of<Element>(state, i);
    prim::cuda::begin_products();
    if constexpr (Shape::corrects) {
#pragma unroll
      for (int i = 0; i < Shape::keys / 16; ++i) {
        rows_product(written, read[i], key_rows::along(held, i), true);
      }
      prim::cuda::commit_products();
    }
#pragma unroll
    for (int i = 0; i < Shape::keys / 16; ++i) {
      rows_product(answers, read[i], key_rows::along(q, i), i > 0);
    }
    prim::cuda::commit_products();
    if constexpr (Shape::corrects) {
      prim::cuda::wait_products<1>();
      prim::cuda::keep_in_place(written);
    }
  }

  /// Values of the warp's columns, transposed; whether all of the tokens before `end` are finite.
  __device__ __forceinline__ bool load_values(const walk_item<Shape>& item, int end,
                                              prim::cuda::warpgroup_a (&values)[steps]) const {
    const std::uint32_t v = prim::cuda::shared_address(item.v);
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
    return remove_not_finite(values, end);
  }
  /// What is not finite becomes 0, which earlier tokens alone may see; the first such token of a
  /// column is noted if it lies before `end`.
  __device__ __forceinline__ bool remove_not_finite(prim::cuda::warpgroup_a (&values)[steps],
                                                    int end) const {
    bool any = false;
#pragma unroll
    for (const auto& of_step : values) {
#pragma unroll
      for (const std::uint32_t word : of_step.word) {
        any = any || prim::cuda::any_not_finite<Element>(word);
      }
    }
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
  __device__ __forceinline__ void mark_not_finite(float (&state)[Shape::keys / 2],
                                                  float (&answers)[32], int poison) const {
    const float nan = __int_as_float(0x7fc00000);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int& noted = shared_.first_not_finite[warp_ * 16 + half * 8 + lane_ / 4];
      const int first = min(noted, poison);
      __syncwarp();
      noted = Shape::tokens;
      if (first >= Shape::tokens) continue;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const int token = n * 8 + lane_ % 4 * 2;
        if (token >= first) answers[4 * n + 2 * half] = nan;
        if (token + 1 >= first) answers[4 * n + 2 * half + 1] = nan;
      }
#pragma unroll
      for (int n = 0; n < Shape::keys / 8; ++n) {
        state[4 * n + 2 * half] = state[4 * n + 2 * half + 1] = nan;
      }
    }
    __syncwarp();
  }

  /// Answers to memory, through the warp's part of the values.
  __device__ __forceinline__ void store(unsigned char* staging, const item_tokens& tokens,
                                        const float (&answers)[32]) const {
    const std::uint32_t staged = prim::cuda::shared_address(staging);
    const auto lane = static_cast<std::uint32_t>(lane_);
    const std::uint32_t own = static_cast<std::uint32_t>(warp_) * 2;
    const float scale = args_.scale;
    __syncwarp();  // The lanes have read the values whose place this takes.
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
    __syncwarp();
    const std::int64_t columns = args_.value_dim - own_column();
    const ordered_rows rows = shared_.rows_out;
    auto* const out = static_cast<Element*>(args_.out.data) + own_column() + lane % 2 * 8;
    const auto left = static_cast<int>(min(columns - lane % 2 * 8, std::int64_t{8}));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = i * 16 + lane_ / 2;
      if (row < tokens.first || row >= tokens.end) continue;
      const unsigned char* const from =
          staging + value_rows::offset(static_cast<std::uint32_t>(row), own + lane % 2);
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

  template <class Rows>
  static __device__ __forceinline__ std::uint64_t describe(const unsigned char* rows) {
    return Rows::describe(prim::cuda::shared_address(rows));
  }

  const delta_rule_kernel_args& args_;
  memory& shared_;
  std::int64_t column_;
  int warp_, lane_;
};

}  // namespace tessera::kernels::delta_rule::sm90
