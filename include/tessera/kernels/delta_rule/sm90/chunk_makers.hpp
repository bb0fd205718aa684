// The warpgroups that make operands, one or, where columns decay, two: of each segment of a chunk
// the rows that read and write the state, the weights P of pairs of tokens, and M beta with M the
// inverse of I + A.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_memory.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_products.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_rows.hpp>

namespace tessera::kernels::delta_rule::sm90 {

template <class Element, class Shape>
class operand_maker {
  using memory = walk_memory<Shape>;
  using words = prim::cuda::half_words<Element>;
  using key_rows = typename Shape::key_rows;
  static constexpr int threads = Shape::maker_threads;

 public:
  __device__ __forceinline__ operand_maker(const delta_rule_kernel_args& args,
                                           const further_decays& further, const back_scan& back,
                                           memory& shared, const sequence& all, std::int64_t head,
                                           std::int64_t column)
      : args_(args),
        further_(further),
        shared_(shared),
        all_(all),
        column_(column),
        thread_(static_cast<int>(threadIdx.x)),
        earlier_(Shape::returns && back.returns ? 1 : 0),
        scaler_(shared, args, back, head, column) {
    if (!Shape::corrects) constant_ = further.constant_of(all.number, head);
  }

  __device__ __forceinline__ void make_all() {
    if (all_.length > 0) {
      ask_for_gates(0);
      copy_updates(0);
      if constexpr (Shape::by_column) {
        load_item(0, ring_);
      } else {
        copy_keys(0);
      }
    }
    for (std::int64_t token = 0; token < all_.length; token = behind(token)) {
      const int count = count_at(token);
      put_gates(token, count);
      for (chunk_segment segment; segment.end < count;) {
        walk_item<Shape>& item = shared_.items[ring_.stage()];
        if constexpr (!Shape::by_column) {
          ring_.wait_empty(barriers());
          scaler_.load(token, count, item);
        }
        prim::cuda::wait_copies<0>();
        wait_for_makers<Shape>();
        if (Shape::corrects && !Shape::low_rank && segment.end == 0) measure_rows();
        scaler_.sum_own(count, item);
        wait_for_makers<Shape>();
        scaler_.add_earlier(segment.end == 0);
        segment = scaler_.segment_from(segment.end, item);
        make_item(segment, token, count);
      }
    }
    ring_.wait_empty(barriers());
    item_facts<Shape>& facts = shared_.facts[ring_.stage()];
    scaler_.finish(facts.factors, all_.length, behind_of_head());
    if (thread_ == 0) facts.tokens.first = facts.tokens.end = 0;
    prim::cuda::arrive(ring_.full(barriers()));
  }

 private:
  __device__ __forceinline__ std::uint32_t barriers() const {
    return prim::cuda::shared_address(&shared_.ring);
  }
  /// Tokens of the chunk from `token` on; where columns decay, chunks begin at the same tokens from
  /// both ends, since states in front of them are kept.
  __device__ __forceinline__ int count_at(std::int64_t token) const {
    if (Shape::by_column && earlier_ > 0 && token == 0) {
      return static_cast<int>((all_.length - 1) % Shape::tokens) + 1;
    }
    return static_cast<int>(min(all_.length - token, static_cast<std::int64_t>(Shape::tokens)));
  }
  /// The chunk behind that of `token`.
  __device__ __forceinline__ std::int64_t behind(std::int64_t token) const {
    return token + (Shape::by_column ? count_at(token) : Shape::tokens);
  }
  __device__ __forceinline__ void copy_keys(std::int64_t token) const {
    copy_key_rows(token, shared_.q, args_.q, shared_.rows_q);
    copy_key_rows(token, shared_.k, args_.k, shared_.rows_k);
    prim::cuda::commit_copies();
  }
  /// Rows of low-rank updates, which belong to the group of the keys.
  __device__ __forceinline__ void copy_updates(std::int64_t token) const {
    if constexpr (Shape::low_rank) {
      copy_key_rows(token, shared_.read, args_.read, shared_.rows_read);
      copy_key_rows(token, shared_.write, args_.write, shared_.rows_write);
    }
  }
  __device__ __forceinline__ void copy_key_rows(std::int64_t token, unsigned char* to,
                                                const delta_rule_input& from,
                                                const ordered_rows& rows) const {
    recurrence::sm80::copy_rows<Element, key_rows, threads>(prim::cuda::shared_address(to),
                                                            from.data, rows, token, count_at(token),
                                                            static_cast<int>(args_.key_dim));
  }
  /// Starts to load what the item at `place` is made of where columns decay, once this is empty.
  __device__ __forceinline__ void load_item(std::int64_t token,
                                            prim::cuda::ring_place<Shape::stages> place) const {
    place.wait_empty(barriers());
    walk_item<Shape>& item = shared_.items[place.stage()];
    scaler_.load(token, count_at(token), item);
    copy_key_rows(token, item.q, args_.q, shared_.rows_q);
    copy_key_rows(token, item.k, args_.k, shared_.rows_k);
    copy_values(token, item.v);
  }
  /// That of the item behind this one, of the chunk of `next`.
  __device__ __forceinline__ void load_next(std::int64_t next) const {
    if (next >= all_.length) return;
    prim::cuda::ring_place<Shape::stages> place = ring_;
    place.advance();
    load_item(next, place);
  }
  __device__ __forceinline__ void copy_values(std::int64_t token, unsigned char* to) const {
    recurrence::sm80::copy_rows<Element, typename Shape::value_rows, threads>(
        prim::cuda::shared_address(to), static_cast<const Element*>(args_.v.data) + column_,
        shared_.rows_v, token, count_at(token), static_cast<int>(args_.value_dim - column_));
    prim::cuda::commit_copies();
  }
  /// The thread's token of a chunk: asks for its beta, or what its head decays by besides.
  __device__ __forceinline__ void ask_for_gates(std::int64_t token) {
    const std::int64_t at = token + thread_ - earlier_;
    if (thread_ >= Shape::tokens || token + thread_ >= all_.length || at < 0) return;
    if constexpr (Shape::low_rank) {
      return;
    } else if constexpr (Shape::corrects) {
      beta_ = prim::cuda::number_at(args_.beta.data, args_.beta.type, shared_.rows_beta.at(at));
    } else if (further_.of_heads.data != nullptr) {
      decay_ = prim::cuda::number_at(further_.of_heads.data, further_.of_heads.type,
                                     shared_.rows_beta.at(at));
    }
  }
  /// Behind the last token beta is 0; of low-rank updates, which have none, 1.
  __device__ __forceinline__ void put_gates(std::int64_t token, int count) const {
    if (thread_ >= Shape::tokens) return;
    const bool is_token = Shape::returns ? thread_ < count && token + thread_ >= earlier_
                                         : token + thread_ < all_.length;
    if constexpr (Shape::low_rank) {
      shared_.beta[thread_] = 1.0f;
    } else if constexpr (Shape::corrects) {
      shared_.beta[thread_] = is_token ? beta_of<device_code>(args_, beta_) : 0.0f;
    } else {
      shared_.head_decays[thread_] = is_token ? decay_ + constant_ : 0.0f;
    }
  }
  /// The log decay of the head behind the last token, of scans that return.
  __device__ __forceinline__ float behind_of_head() const {
    if (earlier_ == 0 || all_.length <= 0) return 0.0f;
    const delta_rule_input& from = further_.of_heads;
    if (from.data == nullptr) return constant_;
    return constant_ +
           prim::cuda::number_at(from.data, from.type, shared_.rows_beta.at(all_.length - 1));
  }
  /// 1 over the lengths of the rows of q and k, a thread a row; without norms 1.
  __device__ __forceinline__ void measure_rows() const {
    const int row = thread_ % Shape::tokens;
    const bool is_key = thread_ >= Shape::tokens;
    float scale = 1.0f;
    if (args_.normalizes) {
      const unsigned char* const rows = is_key ? shared_.k : shared_.q;
      float sum[4] = {};
#pragma unroll
      for (int i = 0; i < key_rows::chunks; ++i) {
        const auto chunk =
            *reinterpret_cast<const uint4*>(rows + key_rows::offset(static_cast<std::uint32_t>(row),
                                                                    static_cast<std::uint32_t>(i)));
        const std::uint32_t word[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float low = words::unpack(static_cast<std::uint16_t>(word[j]));
          const float high = words::unpack(static_cast<std::uint16_t>(word[j] >> 16));
          sum[j] = fmaf(low, low, fmaf(high, high, sum[j]));
        }
      }
      scale = 1.0f / sqrtf(sum[0] + sum[1] + (sum[2] + sum[3]) + 1e-6f);
    }
    (is_key ? shared_.scale_k : shared_.scale_q)[row] = scale;
  }

  __device__ __forceinline__ void make_item(const chunk_segment& segment, std::int64_t token,
                                            int count) {
    walk_item<Shape>& item = shared_.items[ring_.stage()];
    item_facts<Shape>& facts = shared_.facts[ring_.stage()];
    if constexpr (Shape::by_column) {
      load_next(segment.end < count ? token : behind(token));
    } else {
      copy_values(token, item.v);
    }
    if (thread_ == 0) shared_.poison = Shape::tokens;
    wait_for_makers<Shape>();
    scaler_.scale(segment, item, facts);
    if (Shape::corrects && !Shape::low_rank && thread_ >= segment.first && thread_ < segment.end &&
        prim::cuda::any_not_finite<float>(__float_as_uint(shared_.beta[thread_]))) {
      atomicMin(&shared_.poison, thread_);
    }
    prim::cuda::show_writes_to_async_units();
    wait_for_makers<Shape>();
    const int poison = Shape::corrects ? shared_.poison : Shape::tokens;
    if (thread_ == 0) {
      facts.tokens.token = token;
      facts.tokens.first = segment.first;
      facts.tokens.end = min(segment.end, count);
      facts.tokens.poison = poison;
    }
    if constexpr (Shape::corrects) {
      if (poison < Shape::tokens) clear_from(poison, item);
    }
    const std::int64_t next = behind(token);
    const bool goes_on = segment.end >= count && next < all_.length;
    if (goes_on) {
      ask_for_gates(next);
      copy_updates(next);
      if (!Shape::low_rank && !Shape::by_column) copy_keys(next);
      // Where columns decay, rows of the next chunk are on their way already.
      if constexpr (!Shape::by_column) scaler_.fetch(next, count_at(next));
    } else if (!Shape::low_rank && !Shape::by_column) {
      prim::cuda::commit_copies();
    }
    const chunk_products<Element, Shape> products(shared_, item);
    if constexpr (Shape::corrects) {
      products.make_weights(segment.first);
      // Places of q and k have what rounding took from them, which products have read now.
      if (Shape::low_rank && goes_on) copy_keys(next);
      if (Shape::low_rank && !goes_on) prim::cuda::commit_copies();
      products.make_readers();
    } else {
      if (threads == 128 || prim::cuda::warpgroup_index() == 0) products.make_pairs();
    }
    if (!Shape::by_column) prim::cuda::wait_copies<1>();
    prim::cuda::show_writes_to_async_units();
    prim::cuda::arrive(ring_.full(barriers()));
    ring_.advance();
  }
  /// Rows of k, and beta, of tokens from the first on that is not finite become 0.
  __device__ __forceinline__ void clear_from(int poison, walk_item<Shape>& item) const {
    constexpr std::uint32_t zeros[4] = {};
#pragma unroll 1
    for (int place = thread_; place < (Shape::tokens - poison) * key_rows::chunks;
         place += threads) {
      const std::uint32_t at =
          key_rows::offset(static_cast<std::uint32_t>(poison + place / key_rows::chunks),
                           static_cast<std::uint32_t>(place % key_rows::chunks));
      prim::cuda::store_shared_16(prim::cuda::shared_address(item.held) + at, zeros);
      prim::cuda::store_shared_16(prim::cuda::shared_address(item.k) + at, zeros);
      if constexpr (Shape::low_rank) {
        prim::cuda::store_shared_16(prim::cuda::shared_address(item.own) + at, zeros);
      }
    }
    if (thread_ >= poison && thread_ < Shape::tokens) shared_.beta[thread_] = 0.0f;
    prim::cuda::show_writes_to_async_units();
    wait_for_makers<Shape>();
  }

  const delta_rule_kernel_args& args_;
  const further_decays& further_;
  memory& shared_;
  const sequence& all_;
  std::int64_t column_;
  int thread_;
  int earlier_;  ///< steps between a token and the one whose decay is in front of it
  float constant_ = 0.0f;
  float beta_ = 0.0f, decay_ = 0.0f;  ///< as they come
  row_scaler<Element, Shape> scaler_;
  prim::cuda::ring_place<Shape::stages> ring_;
};

}  // namespace tessera::kernels::delta_rule::sm90
