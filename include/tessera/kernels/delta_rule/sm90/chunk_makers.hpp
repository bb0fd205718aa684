// The warpgroup that makes operands: of each segment of a chunk the rows that read and write the
// state, the weights P of pairs of tokens, and M beta with M the inverse of I + A.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_inverse.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_memory.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_rows.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::delta_rule::sm90 {

template <class Element, class Shape>
class operand_maker {
  using memory = walk_memory<Shape>;
  using words = prim::cuda::half_words<Element>;
  using key_rows = typename Shape::key_rows;
  using weight_rows = typename Shape::weight_rows;
  static constexpr int threads = Shape::maker_threads;
  static constexpr int depths = Shape::keys / 16;

 public:
  __device__ __forceinline__ operand_maker(const delta_rule_kernel_args& args, memory& shared,
                                           const sequence& all, std::int64_t head,
                                           std::int64_t column)
      : args_(args),
        shared_(shared),
        all_(all),
        column_(column),
        thread_(static_cast<int>(threadIdx.x)),
        scaler_(shared, args, head) {}

  __device__ __forceinline__ void make_all() {
    if (all_.length > 0) copy_keys(0);
    for (std::int64_t token = 0; token < all_.length; token += Shape::tokens) {
      const int count = count_at(token);
      load_beta(token);
      for (chunk_segment segment; segment.end < count;) {
        ring_.wait_empty(barriers());
        walk_item<Shape>& item = shared_.items[ring_.stage()];
        scaler_.load(token, count, item);
        prim::cuda::wait_copies<0>();
        wait_for_makers<Shape>();
        if (segment.end == 0) measure_rows();
        scaler_.sum_own(count, item);
        wait_for_makers<Shape>();
        scaler_.add_earlier(segment.end == 0);
        segment = scaler_.segment_from(segment.end, item);
        make_item(segment, token, count);
      }
    }
    ring_.wait_empty(barriers());
    item_facts<Shape>& facts = shared_.facts[ring_.stage()];
    scaler_.finish(facts.factors);
    if (thread_ == 0) facts.first = facts.end = 0;
    prim::cuda::arrive(ring_.full(barriers()));
  }

 private:
  __device__ __forceinline__ std::uint32_t barriers() const {
    return prim::cuda::shared_address(&shared_.ring);
  }
  __device__ __forceinline__ int count_at(std::int64_t token) const {
    return static_cast<int>(min(all_.length - token, static_cast<std::int64_t>(Shape::tokens)));
  }
  __device__ __forceinline__ void copy_keys(std::int64_t token) const {
    copy_key_rows(token, shared_.q, args_.q, shared_.rows_q);
    copy_key_rows(token, shared_.k, args_.k, shared_.rows_k);
    if constexpr (Shape::low_rank) {
      copy_key_rows(token, shared_.read, args_.read, shared_.rows_read);
      copy_key_rows(token, shared_.write, args_.write, shared_.rows_write);
    }
    prim::cuda::commit_copies();
  }
  __device__ __forceinline__ void copy_key_rows(std::int64_t token, unsigned char* to,
                                                const delta_rule_input& from,
                                                const ordered_rows& rows) const {
    recurrence::sm80::copy_rows<Element, key_rows, threads>(prim::cuda::shared_address(to),
                                                            from.data, rows, token, count_at(token),
                                                            static_cast<int>(args_.key_dim));
  }
  __device__ __forceinline__ void copy_values(std::int64_t token, unsigned char* to) const {
    recurrence::sm80::copy_rows<Element, typename Shape::value_rows, threads>(
        prim::cuda::shared_address(to), static_cast<const Element*>(args_.v.data) + column_,
        shared_.rows_v, token, count_at(token), static_cast<int>(args_.value_dim - column_));
    prim::cuda::commit_copies();
  }
  /// Behind the last token it is 0; of low-rank updates, which have none, 1.
  __device__ __forceinline__ void load_beta(std::int64_t token) const {
    if (thread_ >= Shape::tokens) return;
    const std::int64_t at = token + thread_;
    float x = Shape::low_rank ? 1.0f : 0.0f;
    if (!Shape::low_rank && at < all_.length) {
      x = beta_of<device_code>(
          args_, prim::cuda::number_at(args_.beta.data, args_.beta.type, shared_.rows_beta.at(at)));
    }
    shared_.beta[thread_] = x;
  }
  /// 1 over the lengths of the rows of q and k, a thread a row; without norms 1.
  __device__ __forceinline__ void measure_rows() const {
    const int row = thread_ % Shape::tokens;
    const bool is_key = thread_ >= Shape::tokens;
    float scale = 1.0f;
    if (args_.normalizes) {
      const std::uint32_t rows = prim::cuda::shared_address(is_key ? shared_.k : shared_.q);
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < key_rows::chunks; ++i) {
        std::uint32_t chunk[4];
        prim::cuda::load_shared_16(chunk, rows + key_rows::offset(static_cast<std::uint32_t>(row),
                                                                  static_cast<std::uint32_t>(i)));
#pragma unroll
        for (const std::uint32_t word : chunk) {
          const float low = words::unpack(static_cast<std::uint16_t>(word));
          const float high = words::unpack(static_cast<std::uint16_t>(word >> 16));
          sum = fmaf(low, low, fmaf(high, high, sum));
        }
      }
      scale = 1.0f / sqrtf(sum + 1e-6f);
    }
    (is_key ? shared_.scale_k : shared_.scale_q)[row] = scale;
  }

  __device__ __forceinline__ void make_item(const chunk_segment& segment, std::int64_t token,
                                            int count) {
    walk_item<Shape>& item = shared_.items[ring_.stage()];
    item_facts<Shape>& facts = shared_.facts[ring_.stage()];
    copy_values(token, item.v);
    if (thread_ == 0) shared_.poison = Shape::tokens;
    wait_for_makers<Shape>();
    scaler_.scale(segment, item, facts.factors);
    if (thread_ >= segment.first && thread_ < segment.end &&
        prim::cuda::any_not_finite<float>(__float_as_uint(shared_.beta[thread_]))) {
      atomicMin(&shared_.poison, thread_);
    }
    prim::cuda::show_writes_to_async_units();
    wait_for_makers<Shape>();
    const int poison = shared_.poison;
    if (thread_ == 0) {
      facts.token = token;
      facts.first = segment.first;
      facts.end = min(segment.end, count);
      facts.poison = poison;
    }
    if (poison < Shape::tokens) clear_from(poison, item);
    if (segment.end >= count && token + Shape::tokens < all_.length) {
      copy_keys(token + Shape::tokens);
    } else {
      prim::cuda::commit_copies();
    }
    make_weights(item);
    invert(item);
    make_readers(item);
    prim::cuda::wait_copies<1>();
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

  /// A to `solved`, P to the item.
  __device__ __forceinline__ void make_weights(walk_item<Shape>& item) const {
    using product = prim::cuda::warpgroup_product<Element, Shape::tokens>;
    const std::uint64_t q = describe<key_rows>(item.q), k = describe<key_rows>(item.k),
                        reads = describe<key_rows>(item.held);
    float of_keys[32], of_queries[32];
    prim::cuda::begin_products();
#pragma unroll
    for (int i = 0; i < depths; ++i) {
      product::scores(of_keys, key_rows::along(reads, i), key_rows::along(k, i), i > 0);
    }
    prim::cuda::commit_products();
#pragma unroll
    for (int i = 0; i < depths; ++i) {
      product::scores(of_queries, key_rows::along(q, i), key_rows::along(k, i), i > 0);
    }
    prim::cuda::commit_products();
    const int warp = thread_ / 32, lane = thread_ % 32;
    prim::cuda::wait_products<1>();
    prim::cuda::keep_in_place(of_keys);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp * 16 + lane / 4 + half * 8;
      const float beta = Shape::low_rank ? -1.0f : shared_.beta[row];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (i / 2 > warp) break;
        const int token = i * 8 + lane % 4 * 2;
        const float low = beta * of_keys[4 * i + 2 * half];
        const float high = beta * of_keys[4 * i + 2 * half + 1];
        *reinterpret_cast<float2*>(&shared_.solved[row][token]) =
            make_float2(token < row ? low : 0.0f, token + 1 < row ? high : 0.0f);
      }
    }
    prim::cuda::wait_products<0>();
    store_weights(item.weights, of_queries, 1);
    if constexpr (Shape::low_rank) {
      float of_own[32];
      multiply_rows(of_own, item.q, item.own);
      store_weights(item.own_weights, of_own, 1);
    }
  }
  /// Rows times rows.
  static __device__ __forceinline__ void multiply_rows(float (&sums)[32], const unsigned char* a,
                                                       const unsigned char* b) {
    using product = prim::cuda::warpgroup_product<Element, Shape::tokens>;
    const std::uint64_t of_a = describe<key_rows>(a), of_b = describe<key_rows>(b);
    prim::cuda::begin_products();
#pragma unroll
    for (int i = 0; i < depths; ++i) {
      product::scores(sums, key_rows::along(of_a, i), key_rows::along(of_b, i), i > 0);
    }
    prim::cuda::commit_products();
    prim::cuda::wait_products<0>();
  }
  /// Weights of tokens below `row + more`, rounded; those of others are 0.
  __device__ __forceinline__ void store_weights(unsigned char* to, float (&sums)[32],
                                                int more) const {
    prim::cuda::keep_in_place(sums);
    const int warp = thread_ / 32, lane = thread_ % 32;
    const std::uint32_t weights = prim::cuda::shared_address(to);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp * 16 + lane / 4 + half * 8;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int token = i * 8 + lane % 4 * 2;
        const float low = sums[4 * i + 2 * half], high = sums[4 * i + 2 * half + 1];
        store_word(weights, row, i, token < row + more ? low : 0.0f,
                   token + 1 < row + more ? high : 0.0f);
      }
    }
  }
  __device__ __forceinline__ void invert(walk_item<Shape>& item) const {
    const int warp = thread_ / 32, lane = thread_ % 32;
    const std::uint32_t inverse = prim::cuda::shared_address(item.inverse);
    const auto put = [&](int row, int column, const prim::cuda::accumulator(&sums)[2], float sign) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int token = column * 16 + n * 8 + lane % 4 * 2;
        const float low = sign * shared_.beta[token], high = sign * shared_.beta[token + 1];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          store_word(inverse, row * 16 + lane / 4 + half * 8, column * 2 + n,
                     low * sums[n].at[2 * half], high * sums[n].at[2 * half + 1]);
        }
      }
    };
    sm80::invert_diagonal(shared_.solved, warp, put);
    wait_for_makers<Shape>();
    sm80::invert_below(shared_.solved, warp, put);
    prim::cuda::show_writes_to_async_units();
    wait_for_makers<Shape>();
  }
  /// -M beta times the rows of k that read, in their place. Of low-rank updates M times the rows
  /// that read, and M times their products with k in the place of M.
  __device__ __forceinline__ void make_readers(walk_item<Shape>& item) const {
    using product = prim::cuda::warpgroup_product<Element, Shape::keys>;
    const std::uint64_t inverse = describe<weight_rows>(item.inverse),
                        reads = describe<key_rows>(item.held);
    if constexpr (Shape::low_rank) round_own(item);
    float sums[Shape::keys / 2];
    prim::cuda::begin_products();
#pragma unroll
    for (int i = 0; i < Shape::tokens / 16; ++i) {
      product::template multiply<false, true>(sums, weight_rows::along(inverse, i),
                                              key_rows::across(reads, i), i > 0);
    }
    prim::cuda::commit_products();
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(sums);
    wait_for_makers<Shape>();
    constexpr float sign = Shape::low_rank ? 1.0f : -1.0f;
    const int warp = thread_ / 32, lane = thread_ % 32;
    const std::uint32_t held = prim::cuda::shared_address(item.held);
#pragma unroll
    for (int i = 0; i < Shape::keys / 8; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t word =
            words::pack(sign * sums[4 * i + 2 * half], sign * sums[4 * i + 2 * half + 1]);
        prim::cuda::store_shared_4(
            held +
                key_rows::offset(static_cast<std::uint32_t>(warp * 16 + lane / 4 + half * 8),
                                 static_cast<std::uint32_t>(i)) +
                static_cast<std::uint32_t>(lane % 4 * 4),
            word);
      }
    }
    if constexpr (Shape::low_rank) multiply_own(item);
  }

  /// Products of rows that read with rows of k, rounded, to `solved`, which nobody needs any more.
  __device__ __forceinline__ void round_own(walk_item<Shape>& item) const {
    float products[32];
    multiply_rows(products, item.held, item.own);
    store_weights(own_products(), products, 0);
    prim::cuda::show_writes_to_async_units();
    wait_for_makers<Shape>();
  }
  /// M times these in the place of M.
  __device__ __forceinline__ void multiply_own(walk_item<Shape>& item) const {
    const std::uint64_t inverse = describe<weight_rows>(item.inverse),
                        of_own = describe<weight_rows>(own_products());
    float sums[32];
    prim::cuda::begin_products();
#pragma unroll
    for (int i = 0; i < Shape::tokens / 16; ++i) {
      prim::cuda::warpgroup_product<Element, Shape::tokens>::template multiply<false, true>(
          sums, weight_rows::along(inverse, i), weight_rows::across(of_own, i), i > 0);
    }
    prim::cuda::commit_products();
    prim::cuda::wait_products<0>();
    wait_for_makers<Shape>();
    store_weights(item.inverse, sums, 0);
  }
  __device__ __forceinline__ unsigned char* own_products() const {
    return reinterpret_cast<unsigned char*>(&shared_.solved);
  }

  template <class Rows>
  static __device__ __forceinline__ std::uint64_t describe(const unsigned char* rows) {
    return Rows::describe(prim::cuda::shared_address(rows));
  }
  static __device__ __forceinline__ void store_word(std::uint32_t to, int row, int tile, float low,
                                                    float high) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    prim::cuda::store_shared_4(
        to +
            weight_rows::offset(static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(tile)) +
            static_cast<std::uint32_t>(lane % 4 * 4),
        words::pack(low, high));
  }

  const delta_rule_kernel_args& args_;
  memory& shared_;
  const sequence& all_;
  std::int64_t column_;
  int thread_;
  row_scaler<Element, Shape> scaler_;
  prim::cuda::ring_place<Shape::stages> ring_;
};

}  // namespace tessera::kernels::delta_rule::sm90
