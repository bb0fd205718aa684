// What a block of keys walks through on Hopper: tiles of queries in two stages of shared memory,
// with what is known of their rows.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention_backward/sm80/key_block.hpp>
#include <tessera/kernels/attention_backward/sm80/tiles.hpp>
#include <tessera/kernels/attention_backward/sm90/panels.hpp>

namespace tessera::kernels::attention_backward::sm90 {

using namespace sm80;  // NOLINT: the pieces of the kernels are the same

/// What is known of the queries of a tile, in the order of its rows.
template <int Queries>
struct query_numbers {
  float shift[Queries], correction[Queries];  ///< shift to the base 2
  int begin[Queries], end[Queries];           ///< of the block's keys those that the query sees

  __device__ __forceinline__ bool sees(int query, int key) const {
    return key >= begin[query] && key < end[query];
  }
};

/// The tiles of queries of a group of heads, one after the other.
struct tile_order {
  int head = 0, tile = 0;
  tile_interval of{};
  int left = 0;  ///< tiles of the head

  /// Blocks of neighbouring keys run beside each other: each begins with other queries, or they
  /// would add to the same sums of d_q at the same time.
  static __device__ __forceinline__ tile_order of_block(const key_block& own, int keys) {
    tile_order order{own.kv_head * own.group, own.seen_by.begin, own.seen_by, own.count};
    if (own.steps > 0) order.tile += static_cast<int>(own.key0 / keys % own.count);
    return order;
  }
  __device__ __forceinline__ void advance() {
    if (++tile == of.end) tile = of.begin;
    if (--left == 0) {
      left = of.end - of.begin;
      ++head;
    }
  }
};

/// The block's keys and values, and the tiles of the steps. For all threads of the block.
template <class Element, class Tiles>
class query_walk {
 public:
  using keys = typename Tiles::keys;
  using values = typename Tiles::values;
  using rows = typename Tiles::rows;
  using out_rows = typename Tiles::out_rows;
  using statistics = typename Tiles::statistics;
  static constexpr int queries = Tiles::queries, own_keys = Tiles::own, threads = Tiles::threads;

  /// `memory`: shared, at a multiple of 1024 bytes; keys, values, what Tiles says, stages.
  __device__ __forceinline__ query_walk(const launch_args& args, const key_block& own,
                                        unsigned char* memory)
      : args_(args),
        own_(own),
        memory_(prim::cuda::shared_address(memory)),
        statistics_(reinterpret_cast<statistics*>(memory + Tiles::statistics_at)),
        loaded_(tile_order::of_block(own, own_keys)),
        thread_(static_cast<int>(threadIdx.x)) {}

  /// Starts the copies of keys, values and the first tile; true if elements of some key or value
  /// are not finite.
  __device__ __forceinline__ bool begin() {
    bool tainted = false;
    if (own_.steps > 0) {
      const attention_kernel_args& of = args_.call.forward;
      const prim::sequence& seq = own_.block.seq;
      const key_taint* const taint = taint_of_keys();
      const int left = own_.size();
      copy_tile<keys, Element, threads>(memory_, of.k, of.k_strides, seq, seq.k_begin + own_.key0,
                                        own_.kv_head,
                                        [&](int r) { return r < left && taint[r].k == 0.0f; });
      copy_tile<values, Element, threads>(memory_ + keys::bytes, of.v, of.v_strides, seq,
                                          seq.k_begin + own_.key0, own_.kv_head,
                                          [&](int r) { return r < left && taint[r].v == 0.0f; });
      start(0);
      for (int r = thread_; r < left; r += threads) {
        tainted = tainted || taint[r].k != 0.0f || taint[r].v != 0.0f;
      }
    }
    return __syncthreads_or(tainted) != 0;
  }

  /// Copies the tile of step `step`, the next one, and says what is known of its queries.
  __device__ __forceinline__ void start(int step) {
    const attention_kernel_args& of = args_.call.forward;
    const prim::sequence& seq = own_.block.seq;
    statistics& known = statistics_[step % 2];
    const std::int64_t first = std::int64_t{loaded_.tile} * queries;
    const auto left = static_cast<int>(seq.q_len - first < queries ? seq.q_len - first : queries);
    const auto used = [&](int r) { return r < left; };
    const std::uint32_t to = rows_of(step);
    copy_tile<rows, Element, threads>(to, of.q, of.q_strides, seq, seq.q_begin + first,
                                      loaded_.head, used);
    copy_tile<out_rows, Element, threads>(to + rows::bytes, args_.call.d_out,
                                          args_.call.d_out_strides, seq, seq.q_begin + first,
                                          loaded_.head, used);
    if (thread_ < queries) {
      const std::int64_t query = first + thread_;
      const std::int64_t from =
          loaded_.head * args_.rows + own_.block.row(of, thread_ < left ? query : 0);
      prim::cuda::copy_async_4(prim::cuda::shared_address(&known.shift[thread_]),
                               args_.shift + from, thread_ < left);
      prim::cuda::copy_async_4(prim::cuda::shared_address(&known.correction[thread_]),
                               args_.correction + from, thread_ < left);
      seen_part seen;
      if (thread_ < left) seen = seen_part::of(own_.visible.keys_of(query), own_.key0, own_keys);
      known.begin[thread_] = seen.begin;
      known.end[thread_] = seen.end;
    }
    prim::cuda::commit_copies();
    loaded_.advance();
  }

  /// The tile of a step has arrived, for all; behind the last step, what others wrote. Rows without
  /// weights may hold anything, and those that are not finite reach others as shifts.
  __device__ __forceinline__ void arrive(int step) const {
    const std::uint32_t q = rows_of(step);
    const statistics& known = statistics_of(step);
    const auto finite = [&](int r) { return known.shift[r] < infinite(); };
    prim::cuda::wait_copies<0>();
    written_for_products();
    if (__syncthreads_or(step < own_.steps && thread_ < queries && !finite(thread_)) != 0) {
      clear_rows<rows, threads>(q, finite);
      clear_rows<out_rows, threads>(q + rows::bytes, finite);
      written_for_products();
      __syncthreads();
    }
  }

  /// Queries of a step, whose rows of d_out lie behind them.
  __device__ __forceinline__ std::uint32_t rows_of(int step) const {
    return memory_ + Tiles::stages_at + static_cast<std::uint32_t>(step % 2 * Tiles::stage_bytes);
  }
  __device__ __forceinline__ const statistics& statistics_of(int step) const {
    return statistics_[step % 2];
  }
  __device__ __forceinline__ const key_taint* taint_of_keys() const {
    return args_.taint + own_.kv_head * args_.keys + own_.block.key(args_.call.forward, own_.key0);
  }

 private:
  const launch_args& args_;
  const key_block& own_;
  std::uint32_t memory_;
  statistics* statistics_;
  tile_order loaded_;  ///< the next tile
  int thread_;
};

}  // namespace tessera::kernels::attention_backward::sm90
