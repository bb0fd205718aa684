// What a block of keys walks through on Hopper: tiles of queries in two stages of shared memory,
// with what is known of their rows.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention_backward/sm80/key_block.hpp>
#include <tessera/kernels/attention_backward/sm80/tiles.hpp>
#include <tessera/kernels/attention_backward/sm80/turns.hpp>
#include <tessera/kernels/attention_backward/sm90/panels.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/thread_votes.hpp>

namespace tessera::kernels::attention_backward::sm90 {

using namespace sm80;  // NOLINT: the pieces of the kernels are the same

/// Which pairs of a tile of queries and the block's keys are seen.
enum class tile_view : std::uint8_t {
  whole,    ///< all
  bounded,  ///< those within the bounds of each query
  any,      ///< of those the ones of one segment; some keys may be tainted
};

/// What is known of the queries of a tile, in the order of its rows.
template <int Queries>
struct alignas(8) query_numbers {
  float shift[Queries], correction[Queries];  ///< shift to the base 2
  std::int32_t segment[Queries];              ///< 0 without segments
  std::int32_t segment_of_keys;               ///< of all keys of the block, or `mixed_segments`
  /// Of the block's keys those that the query sees if they are of its segment: begin <= end.
  std::uint8_t begin[Queries], end[Queries];
  /// The last bits of the last step with pairs hidden by bounds, by segments. That other steps end
  /// with the same bits only costs time.
  std::uint8_t hidden_by_bounds, hidden_by_segments;

  static constexpr std::int32_t mixed_segments = -1;  ///< that of no query that sees keys

  __device__ __forceinline__ bool within_bounds(int query, int key) const {
    const int first = begin[query], count = end[query] - first;
    return static_cast<unsigned>(key - first) < static_cast<unsigned>(count);
  }
  /// Pairs of tainted keys are looked at as those of other segments.
  __device__ __forceinline__ tile_view view_of(int step, bool tainted) const {
    const auto bits = static_cast<std::uint8_t>(step);
    if (tainted || hidden_by_segments == bits) return tile_view::any;
    return hidden_by_bounds == bits ? tile_view::bounded : tile_view::whole;
  }
};

/// The block's keys and values, and the tiles of the steps. For the first `Tiles::threads` threads
/// of the block.
template <class Element, class Tiles, bool InTurns>
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
        loaded_(tile_order<InTurns>::of_block(own, own_keys)),
        thread_(static_cast<int>(threadIdx.x)) {}

  /// Starts the copies of keys, values and the first tile; true if elements of some key or value
  /// are not finite.
  __device__ __forceinline__ bool begin() {
    bool tainted = false;
    if (own_.steps > 0) {
      const attention_kernel_args& of = args_.call.forward;
      const prim::sequence& seq = own_.block.seq;
      const int left = own_.size();
      copy_tile<keys, Element, threads>(memory_, of.k, of.k_strides, seq, seq.k_begin + own_.key0,
                                        own_.kv_head, [&](int r) { return r < left; });
      copy_tile<values, Element, threads>(memory_ + keys::bytes, of.v, of.v_strides, seq,
                                          seq.k_begin + own_.key0, own_.kv_head,
                                          [&](int r) { return r < left; });
      prim::cuda::commit_copies();
      start(0);
      describe_segments();
      prim::cuda::wait_copies<1>();
      tainted = has_copied_taint<keys, Element, threads>(memory_) ||
                has_copied_taint<values, Element, threads>(memory_ + keys::bytes);
    }
    if (!any(tainted)) return false;
    contain_taint<Element, keys, values, threads>(memory_, memory_ + keys::bytes,
                                                  args_.taint + first_taint(), own_.size());
    return true;
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
      const auto& ids = of.q_segments;
      if (ids.data != nullptr) {
        prim::cuda::copy_async_4(
            prim::cuda::shared_address(&known.segment[thread_]),
            ids.data + seq.index * ids.batch + (thread_ < left ? query : 0) * ids.row,
            thread_ < left);
      }
      known.begin[thread_] = static_cast<std::uint8_t>(seen.begin);
      known.end[thread_] = static_cast<std::uint8_t>(max(seen.begin, seen.end));
      if (seen.begin > 0 || seen.end < own_keys) {
        known.hidden_by_bounds = static_cast<std::uint8_t>(step);
      }
    }
    prim::cuda::commit_copies();
    loaded_.advance(own_);
  }

  /// The tile of a step has arrived, for all; behind the last step, what others wrote. Rows without
  /// weights may hold anything, and those that are not finite reach others as shifts.
  __device__ __forceinline__ void arrive(int step) const {
    const std::uint32_t q = rows_of(step);
    statistics& known = statistics_[step % 2];
    const auto finite = [&](int r) { return known.shift[r] < infinite(); };
    prim::cuda::wait_copies<0>();
    if (args_.call.forward.q_segments.data != nullptr && step < own_.steps && thread_ < queries) {
      describe_segments_of(known, step);
    }
    written_for_products();
    if (any(step < own_.steps && thread_ < queries && !finite(thread_))) {
      clear_rows<rows, threads>(q, finite);
      clear_rows<out_rows, threads>(q + rows::bytes, finite);
      written_for_products();
      prim::cuda::wait_for_threads(0, threads);
    }
  }

  /// Queries of a step, whose rows of d_out lie behind them.
  __device__ __forceinline__ std::uint32_t rows_of(int step) const {
    return memory_ + Tiles::stages_at + static_cast<std::uint32_t>(step % 2 * Tiles::stage_bytes);
  }
  __device__ __forceinline__ const statistics& statistics_of(int step) const {
    return statistics_[step % 2];
  }
  /// Behind what is known of queries.
  __device__ __forceinline__ std::int32_t* segments_of_keys() const {
    return reinterpret_cast<std::int32_t*>(statistics_ + 2);
  }
  __device__ __forceinline__ const key_taint* taint_of_keys() const {
    return args_.taint + first_taint();
  }

 private:
  /// Waits for all threads that walk: others of the block may go on.
  static __device__ __forceinline__ bool any(bool here) {
    return prim::cuda::any_of_threads(0, threads, here);
  }
  __device__ __forceinline__ std::int64_t first_taint() const {
    return own_.kv_head * args_.keys + own_.block.key(args_.call.forward, own_.key0);
  }
  /// Segments of the keys, and whether it is one: 0 of all keys and queries without segments.
  __device__ __forceinline__ void describe_segments() {
    const auto& ids = args_.call.forward.kv_segments;
    const auto id_of = [&](int key) {
      if (ids.data == nullptr || key >= own_.size()) return std::int32_t{0};
      return ids.data[own_.block.seq.index * ids.batch + (own_.key0 + key) * ids.row];
    };
    const std::int32_t first = id_of(0), own = id_of(thread_);
    if (thread_ < own_keys) segments_of_keys()[thread_] = own;
    if (ids.data == nullptr && thread_ < queries) {
      statistics_[0].segment[thread_] = 0;
      statistics_[1].segment[thread_] = 0;
    }
    const bool mixed = any(thread_ < own_.size() && own != first);
    if (thread_ < 2) {
      statistics_[thread_].segment_of_keys = mixed ? statistics::mixed_segments : first;
    }
    prim::cuda::wait_for_threads(0, threads);
  }
  /// Queries without a segment see nothing.
  __device__ __forceinline__ void describe_segments_of(statistics& known, int step) const {
    const std::int32_t segment = known.segment[thread_];
    if (segment < 0) known.end[thread_] = known.begin[thread_];
    if (segment < 0 || segment != known.segment_of_keys) {
      known.hidden_by_segments = static_cast<std::uint8_t>(step);
    }
  }

  const launch_args& args_;
  const key_block& own_;
  std::uint32_t memory_;
  statistics* statistics_;
  tile_order<InTurns> loaded_;  ///< the next tile
  int thread_;
};

}  // namespace tessera::kernels::attention_backward::sm90
