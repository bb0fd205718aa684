// Decays of channels in rows of q and k. With G_t the sum of a channel's log decays up to token t
// of a segment, D that of all of them and h = D / 2, rows q_t 2^(G_t - h), k_t 2^(G_t - h), which
// read, and k_t 2^(h - G_t), which writes, and the state in front times 2^h make all products of a
// segment without a power for each pair of tokens. A segment is as long as |D| stays below 128 in
// every channel: no factor leaves [2^-64, 2^64]. A chunk is one segment unless something in it
// forgets quickly.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_memory.hpp>
#include <tessera/kernels/delta_rule/sm90/column_decays.hpp>
#include <tessera/kernels/delta_rule/sm90/fast_gates.hpp>
#include <tessera/kernels/delta_rule/sm90/row_words.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_answers.hpp>
#include <tessera/prim/cuda/fetch.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::delta_rule::sm90 {

using recurrence::sm80::chunk_segment;

/// Two neighbouring channels of some of the chunk's tokens: what a thread that makes operands has.
template <class Element, class Shape>
class row_scaler {
  static constexpr int pairs = Shape::decaying / 2;
  static constexpr int parts = Shape::maker_threads / pairs;
  static constexpr int own_tokens = Shape::tokens / parts;
  static constexpr int batch = Shape::low_rank ? 4 : 8;  ///< tokens whose loads are under way
  using memory = walk_memory<Shape>;
  using decaying_rows =
      std::conditional_t<Shape::by_column, typename Shape::value_rows, typename Shape::key_rows>;
  using words = row_words<Element, Shape>;
  using raw_words = typename words::raw;
  using scaled_words = typename words::scaled;

 public:
  __device__ __forceinline__ row_scaler(memory& shared, const delta_rule_kernel_args& args,
                                        const back_scan& back, std::int64_t head,
                                        std::int64_t column)
      : shared_(shared),
        args_(args),
        back_(back),
        gate_(args.gate, head),
        first_(Shape::by_column ? column : 0),
        earlier_(Shape::returns && back.returns ? 1 : 0) {
    channel_ = static_cast<int>(threadIdx.x) % pairs * 2;
    part_ = static_cast<int>(threadIdx.x) / pairs;
    left_[0] = left_[1] = 1.0f;
  }

  /// Brings decays of a chunk of `count` tokens near: they are copied once an item is empty.
  __device__ __forceinline__ void fetch(std::int64_t token, int count) const {
    static_assert(!Shape::by_column);
    if (args_.decay.type != dtype::f32) return;
    constexpr int floats = 32;  // of a line
    constexpr int lines = Shape::decaying / floats;
    const auto* const first = static_cast<const float*>(args_.decay.data);
#pragma unroll 1
    for (int line = static_cast<int>(threadIdx.x); line < Shape::tokens * lines;
         line += Shape::maker_threads) {
      const int row = line / lines, channel = line % lines * floats;
      if (row >= count || channel >= channels()) continue;
      prim::cuda::fetch_line(first + shared_.rows_g.at(token + row) + channel);
    }
  }
  /// Starts to copy the thread's decays of a chunk of `count` tokens to where its words of the
  /// item's rows will lie.
  __device__ __forceinline__ void load(std::int64_t token, int count,
                                       walk_item<Shape>& item) const {
    const ordered_rows rows = shared_.rows_g;
    const int first = part_ * own_tokens;
    const bool has[2] = {channel_ < channels(), channel_ + 1 < channels()};
    const std::int64_t from = token - earlier_;
    if constexpr (Shape::by_column) {
      if (copy_column_decays(args_.decay, rows, from, count, first_, channels(), item)) return;
    }
    if (args_.decay.type == dtype::f32) {
      const auto* next =
          static_cast<const float*>(args_.decay.data) + rows.at(from + first) + first_ + channel_;
#pragma unroll 8
      for (int i = 0; i < own_tokens; ++i, next += rows.step) {
        const bool used = first + i < count && (earlier_ == 0 || from + first + i >= 0);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          prim::cuda::copy_async_4(prim::cuda::shared_address(sum_at(item, first + i, j)), next + j,
                                   used && has[j]);
        }
      }
      return prim::cuda::commit_copies();
    }
#pragma unroll 2
    for (int i = 0; i < own_tokens; ++i) {
      float x[2] = {};
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (first + i >= count || !has[j] || (earlier_ > 0 && from + first + i < 0)) continue;
        x[j] = prim::cuda::number_at(args_.decay.data, args_.decay.type,
                                     rows.at(from + first + i) + first_ + channel_ + j);
      }
      put_sums(item, first + i, x);
    }
    prim::cuda::commit_copies();
  }
  /// Numbers to log decays, added up, in their place.
  __device__ __forceinline__ void sum_own(int count, walk_item<Shape>& item) {
    // Branches between tokens would keep their loads and powers apart.
    if (gate_.raw) {
      sum_decays<true>(count, item);
    } else {
      sum_decays<false>(count, item);
    }
  }
  /// Those of earlier tokens too, `begins` before the first segment. Behind a barrier.
  __device__ __forceinline__ void add_earlier(bool begins) {
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      if (part == part_) {
        before_[0] = sum.x;
        before_[1] = sum.y;
      }
      const float2 more = take(shared_.sums[part]);
      sum.x += more.x;
      sum.y += more.y;
    }
    ends_[0] = sum.x;
    ends_[1] = sum.y;
    if (begins) base_[0] = base_[1] = 0.0f;
  }

  /// The segment from `first` on; has barriers.
  __device__ __forceinline__ chunk_segment segment_from(int first, walk_item<Shape>& item) {
    bool beyond = false;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float front = before_[j] - base_[j];
      beyond = beyond || is_beyond(least_[j] + front) || is_beyond(most_[j] + front);
    }
    if (!any_of_threads(1, Shape::maker_threads, beyond)) return {first, Shape::tokens};
    if (threadIdx.x == 0) shared_.cut = Shape::tokens;
    wait_for_makers<Shape>();
#pragma unroll 1
    for (int i = 0; i < own_tokens; ++i) {
      const int token = part_ * own_tokens + i;
      const float2 sums = sums_of(item, token);
      if (token <= first || !(is_beyond(sums.x - base_[0]) || is_beyond(sums.y - base_[1])))
        continue;
      atomicMin(&shared_.cut, token);
      break;
    }
    wait_for_makers<Shape>();
    const int cut = shared_.cut;
    if ((cut - 1) / own_tokens == part_) {
      const float2 sums = sums_of(item, cut - 1);
      *reinterpret_cast<float2*>(shared_.ends + channel_) = sums;
    }
    wait_for_makers<Shape>();
    const float2 ends = take(shared_.ends);
    ends_[0] = ends.x;
    ends_[1] = ends.y;
    return {first, cut};
  }

  /// Rows of a segment, and the factors of the state in front of it. The first token of which a row
  /// of k is not finite goes to `poison`; linear attention has its own channel of a state spoilt by
  /// it, and later answers, as products have it.
  __device__ __forceinline__ void scale(const chunk_segment& segment, walk_item<Shape>& item,
                                        item_facts<Shape>& facts) {
    const float whole[2] = {ends_[0] - base_[0], ends_[1] - base_[1]};
    float offset[2], factor[2];
    if (Shape::by_column && part_ == 0) put(facts.left, left_);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      // A sum that is no number is one from its token on only.
      const float half = whole[j] == whole[j] ? 0.5f * whole[j] : 0.0f;
      factor[j] = left_[j] * prim::cuda::exp2_fast(half);
      left_[j] = prim::cuda::exp2_fast(whole[j] - half);
      offset[j] = base_[j] + half;
    }
    if (part_ == 0) put(facts.factors, factor);
    if constexpr (Shape::by_column) {
      scale_values(segment, item, offset);
    } else {
      scale_keys(segment, item, offset);
    }
    base_[0] = ends_[0];
    base_[1] = ends_[1];
  }
  /// What is left to multiply the state by; of scans that return, with the decay of the last of
  /// `length` tokens, which is `of_head` besides that of its channels.
  __device__ __forceinline__ void finish(float* factors, std::int64_t length, float of_head) const {
    float factor[2] = {left_[0], left_[1]};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (earlier_ == 0 || length <= 0 || channel_ + j >= channels()) continue;
      const float x =
          of_head + prim::cuda::number_at(args_.decay.data, args_.decay.type,
                                          shared_.rows_g.at(length - 1) + first_ + channel_ + j);
      factor[j] *= prim::cuda::exp2_fast(recurrence::sm80::log2_decay(x));
    }
    if (part_ == 0) put(factors, factor);
  }

 private:
  /// Where columns decay: values, and factors of answers in the places of sums.
  __device__ __forceinline__ void scale_values(const chunk_segment& segment, walk_item<Shape>& item,
                                               const float (&offset)[2]) const {
    const float more[2] = {before_[0] - offset[0], before_[1] - offset[1]};
#pragma unroll 4
    for (int token = part_ * own_tokens; token < (part_ + 1) * own_tokens; ++token) {
      words::scale_value(word_at(item.v, place_of(token)), sum_at(item, token, 0), more,
                         back_.token_scale, token >= segment.first && token < segment.end);
    }
  }
  __device__ __forceinline__ void scale_keys(const chunk_segment& segment, walk_item<Shape>& item,
                                             const float (&offset)[2]) {
    const bool multiplies = args_.update == delta_rule_update::multiplicative;
    float check = 0.0f;
    float earlier[2] = {before_[0] - offset[0], before_[1] - offset[1]};
#pragma unroll 1
    for (int first = part_ * own_tokens; first < (part_ + 1) * own_tokens; first += batch) {
      raw_words raw[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i) raw[i] = raw_of(item, first + i);
      scaled_words scaled[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const int token = first + i;
        if (Shape::low_rank && token == segment.first) {
          earlier[0] = base_[0] - offset[0];
          earlier[1] = base_[1] - offset[1];
        }
        // Without a branch, so that the powers of several tokens are under way.
        const bool inside = token >= segment.first && token < segment.end;
        if (!inside) raw[i].sums = make_float2(offset[0], offset[1]);
        const scaled_words all = words::scaled_of(raw[i], offset, multiplies, earlier, check);
        scaled[i] = {inside ? all.q : 0u,
                     inside ? all.reads : 0u,
                     inside ? all.writes : 0u,
                     inside ? all.own : 0u,
                     inside ? all.left_of_q : raw[i].q,
                     inside ? all.left_of_k : raw[i].k};
      }
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const std::uint32_t at = place_of(first + i);
        word_at(item.q, at) = scaled[i].q;
        if (Shape::corrects) word_at(item.held, at) = scaled[i].reads;
        word_at(item.k, at) = scaled[i].writes;
        if constexpr (Shape::low_rank) {
          word_at(item.own, at) = scaled[i].own;
          word_at(shared_.q, at) = scaled[i].left_of_q;
          word_at(shared_.k, at) = scaled[i].left_of_k;
        }
      }
    }
    if (Shape::corrects && check != check) find_poison(item);
  }
  /// Those that decay, so many are there.
  __device__ __forceinline__ std::int64_t channels() const {
    return Shape::by_column ? args_.value_dim - first_ : args_.key_dim;
  }
  /// Where a decay of the thread's two channels lies, then sums of them.
  __device__ __forceinline__ float* sum_at(walk_item<Shape>& item, int token, int j) const {
    if constexpr (Shape::by_column) {
      return item.factor_at(token, channel_) + j;
    } else {
      return reinterpret_cast<float*>((j == 0 ? item.q : item.held) + place_of(token));
    }
  }
  /// Of log decays, or of gates of those.
  template <bool Raw>
  __device__ __forceinline__ void sum_decays(int count, walk_item<Shape>& item) {
    float sum[2] = {}, least[2] = {}, most[2] = {};
    const float biases[2] = {bias_of(0), bias_of(1)};
#pragma unroll 1
    for (int first = part_ * own_tokens; first < (part_ + 1) * own_tokens; first += batch) {
      float x[batch][2];
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const float of_head = Shape::corrects ? 0.0f : shared_.head_decays[first + i];
#pragma unroll
        for (int j = 0; j < 2; ++j) x[i][j] = *sum_at(item, first + i, j) + of_head;
      }
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        if constexpr (Raw) open_gates(x[i], biases, first + i < count);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          sum[j] += recurrence::sm80::log2_decay(x[i][j]);
          x[i][j] = sum[j];
          least[j] = fminf(least[j], sum[j]);
          most[j] = fmaxf(most[j], sum[j]);
        }
      }
#pragma unroll
      for (int i = 0; i < batch; ++i) put_sums(item, first + i, x[i]);
    }
    put(shared_.sums[part_], sum);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      least_[j] = least[j];
      most_[j] = most[j];
    }
  }
  __device__ __forceinline__ float bias_of(int j) const {
    const bool has = gate_.raw && gate_.bias != nullptr && channel_ + j < args_.key_dim;
    return has ? gate_.bias[channel_ + j] : 0.0f;
  }
  /// Gates of two channels to log decays.
  __device__ __forceinline__ void open_gates(float (&x)[2], const float (&biases)[2],
                                             bool is_token) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const bool used = is_token && channel_ + j < args_.key_dim;
      const float biased = x[j] + biases[j];
      const float decay = gate_.bounded ? gate_.lower_bound * sigmoid_fast(gate_.rate * biased)
                                        : -gate_.rate * softplus_fast(biased);
      x[j] = used ? decay : 0.0f;
    }
  }
  __device__ __forceinline__ raw_words raw_of(walk_item<Shape>& item, int token) const {
    constexpr bool measured = Shape::corrects && !Shape::low_rank;
    const std::uint32_t at = place_of(token);
    raw_words raw{.q = word_at(shared_.q, at),
                  .k = word_at(shared_.k, at),
                  .read = 0,
                  .write = 0,
                  .sums = sums_of(item, token),
                  .scale_q = measured ? shared_.scale_q[token] : 1.0f,
                  .scale_k = measured         ? shared_.scale_k[token]
                             : Shape::returns ? back_.token_scale
                                              : 1.0f};
    if constexpr (Shape::low_rank) {
      raw.read = word_at(shared_.read, at);
      raw.write = word_at(shared_.write, at);
    }
    return raw;
  }
  __device__ __forceinline__ void find_poison(walk_item<Shape>& item) const {
#pragma unroll 1
    for (int i = 0; i < own_tokens; ++i) {
      const int token = part_ * own_tokens + i;
      const std::uint32_t at = place_of(token);
      bool any = prim::cuda::any_not_finite<Element>(word_at(item.held, at)) ||
                 prim::cuda::any_not_finite<Element>(word_at(item.k, at));
      if constexpr (Shape::low_rank) {
        any = any || prim::cuda::any_not_finite<Element>(word_at(item.own, at));
      }
      if (any) {
        atomicMin(&shared_.poison, token);
        return;
      }
    }
  }
  __device__ __forceinline__ std::uint32_t place_of(int token) const {
    return decaying_rows::offset(static_cast<std::uint32_t>(token),
                                 static_cast<std::uint32_t>(channel_ / 8)) +
           static_cast<std::uint32_t>(channel_ % 8 * 2);
  }
  static __device__ __forceinline__ std::uint32_t& word_at(unsigned char* rows, std::uint32_t at) {
    return *reinterpret_cast<std::uint32_t*>(rows + at);
  }
  static __device__ __forceinline__ bool is_beyond(float sum) {
    return fabsf(sum) > 128.0f;
  }
  __device__ __forceinline__ void put_sums(walk_item<Shape>& item, int token,
                                           const float (&sums)[2]) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) *sum_at(item, token, j) = sums[j];
  }
  /// Up to a token of the thread, with those of earlier threads.
  __device__ __forceinline__ float2 sums_of(walk_item<Shape>& item, int token) const {
    return make_float2(*sum_at(item, token, 0) + before_[0], *sum_at(item, token, 1) + before_[1]);
  }
  __device__ __forceinline__ void put(float* row, const float (&values)[2]) const {
    *reinterpret_cast<float2*>(row + channel_) = make_float2(values[0], values[1]);
  }
  __device__ __forceinline__ float2 take(const float* row) const {
    return *reinterpret_cast<const float2*>(row + channel_);
  }

  memory& shared_;
  const delta_rule_kernel_args& args_;
  const back_scan& back_;
  head_gate<device_code> gate_;
  std::int64_t first_;  ///< of the channels that decay
  int earlier_;         ///< steps between a token and the one whose decay is in front of it
  int channel_, part_;
  float least_[2], most_[2];             ///< of the thread's own sums
  float before_[2], base_[2], ends_[2];  ///< sums in front of the thread, the segment, behind it
  float left_[2];
};

}  // namespace tessera::kernels::delta_rule::sm90
