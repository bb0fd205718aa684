// d_k and d_v: a block owns 128 keys and walks through the queries of its group that see them.
//
// Scores are computed transposed, S^T = K Q^T: rows are the warp's 16 keys. So weights leave the
// matrix unit in the registers that they enter it by: d_v += P^T d_out, d_k += d_s^T Q.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention_backward/sm80/tile_walk.hpp>
#include <tessera/kernels/attention_backward/sm80/tiles.hpp>

namespace tessera::kernels::attention_backward::sm80 {

/// What is known of the queries of a tile, in the order of its rows.
template <int Queries>
struct query_statistics {
  float shift[Queries], correction[Queries];  ///< shift to the base 2
  int begin[Queries], end[Queries];           ///< of the block's keys those that the query sees
};

template <int Width>
struct key_tiles {
  static constexpr int queries = Width > 96 ? 32 : 64;  ///< sums and scores fit the registers
  using keys = prim::cuda::shared_tile<own_rows, Width>;
  using rows = prim::cuda::shared_tile<queries, Width>;
  using statistics = query_statistics<queries>;
  static constexpr int stage_bytes = 2 * rows::bytes + static_cast<int>(sizeof(statistics));
  static constexpr int shared_bytes = 2 * keys::bytes + 2 * stage_bytes;
};

template <class Element, int Width, score_kind Kind, class Hooks>
__global__ void __launch_bounds__(threads, 1)
    key_gradients(const __grid_constant__ hooked_args<Hooks> args) {
  using tiles = key_tiles<Width>;
  using keys = typename tiles::keys;
  using rows = typename tiles::rows;
  constexpr int queries = tiles::queries;
  extern __shared__ __align__(128) unsigned char memory[];
  const attention_kernel_args& of = args.call.forward;
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
  const std::int64_t item = blockIdx.x;
  const int kv_head = static_cast<int>(item % of.kv_heads);
  const std::int64_t key0 = item / of.kv_heads % args.tiles * own_rows;
  const block_sequence block = block_sequence::of(of, item / of.kv_heads / args.tiles);
  const prim::sequence& seq = block.seq;
  if (key0 >= block.all_k) return;

  const std::uint32_t k = prim::cuda::shared_address(memory), v = k + keys::bytes;
  const std::uint32_t stages = v + keys::bytes;
  const auto visible = kernels::attention::visibility_of<mask_mode::window>(of, seq);
  const prim::key_interval own{key0, key0 + own_rows < seq.k_len ? key0 + own_rows : seq.k_len};
  const tile_interval seen_by = tiles_that_see<queries>(visible, seq.q_len, own);
  const int group = kernels::attention::group_of(of);
  const int end_head = own.empty() || seen_by.empty() ? 0 : (kv_head + 1) * group;
  const auto statistics_of = [&](int stage) {
    return reinterpret_cast<typename tiles::statistics*>(
        memory + 2 * keys::bytes + stage * tiles::stage_bytes + 2 * rows::bytes);
  };
  const auto look_at = [&](int head, int tile) {
    const std::int64_t first = std::int64_t{tile} * queries;
    const std::int64_t end = first + queries < seq.q_len ? first + queries : seq.q_len;
    return seen_of_tile(args, seq.index, head, {first, end}, own);
  };
  __shared__ tile_words words;
  tile_walk<lists_tiles<Hooks>, false, decltype(look_at)> walk(seen_by, end_head, words, look_at);
  const auto start = [&](const tile_step& step, int stage) {
    const int head = step.head;
    const std::int64_t first = std::int64_t{step.tile} * queries;
    const auto left = static_cast<int>(seq.q_len - first < queries ? seq.q_len - first : queries);
    const auto used = [&](int r) { return r < left; };
    const std::uint32_t to = stages + static_cast<std::uint32_t>(stage * tiles::stage_bytes);
    copy_tile<rows, Element>(to, of.q, of.q_strides, seq, seq.q_begin + first, head, used);
    copy_tile<rows, Element>(to + rows::bytes, args.call.d_out, args.call.d_out_strides, seq,
                             seq.q_begin + first, head, used);
    if (thread < queries) {
      typename tiles::statistics& stats = *statistics_of(stage);
      const std::int64_t place = head * args.rows + block.row(of, first);
      const int from = thread < left ? thread : 0;
      prim::cuda::copy_async_4(prim::cuda::shared_address(&stats.shift[thread]),
                               args.shift + place + from, thread < left);
      prim::cuda::copy_async_4(prim::cuda::shared_address(&stats.correction[thread]),
                               args.correction + place + from, thread < left);
      seen_part seen;
      if (thread < left) seen = seen_part::of(visible.keys_of(first + thread), key0, own_rows);
      stats.begin[thread] = seen.begin;
      stats.end[thread] = seen.end;
    }
    prim::cuda::commit_copies();
  };

  accumulator d_k[Width / 8] = {}, d_v[Width / 8] = {};
  key_taint taint[2] = {};
  tile_step now = walk.first_of(kv_head * group);
  int stage = 0;
  if (walk.holds(now)) {
    const key_taint* const of_keys = args.taint + kv_head * args.keys + block.key(of, key0);
    const auto left = static_cast<int>(own.end - own.begin);
    copy_tile<keys, Element>(k, of.k, of.k_strides, seq, seq.k_begin + key0, kv_head,
                             [&](int r) { return r < left && of_keys[r].k == 0.0f; });
    copy_tile<keys, Element>(v, of.v, of.v_strides, seq, seq.k_begin + key0, kv_head,
                             [&](int r) { return r < left && of_keys[r].v == 0.0f; });
    for (int half = 0; half < 2; ++half) {
      const int r = warp * 16 + lane / 4 + 8 * half;
      if (r < left) taint[half] = of_keys[r];
    }
    start(now, stage);
  }
  const float scale = of.softmax_scale * prim::log2_e;
  const std::uint32_t of_a = keys::lane_of_a(static_cast<unsigned>(lane)) +
                             static_cast<unsigned>(warp * 16 * keys::row_bytes);
  const std::uint32_t of_b = rows::lane_of_b(static_cast<unsigned>(lane));
  const std::uint32_t of_rows = rows::lane_of_a(static_cast<unsigned>(lane));
  while (walk.holds(now)) {
    const std::uint32_t q = stages + static_cast<std::uint32_t>(stage * tiles::stage_bytes);
    const std::uint32_t d_out = q + rows::bytes;
    const typename tiles::statistics& stats = *statistics_of(stage);
    prim::cuda::wait_copies<0>();
    // Rows without weights may hold anything, and those that are not finite reach others as shifts.
    const auto finite = [&](int r) { return stats.shift[r] < infinite(); };
    if (__syncthreads_or(thread < queries && !finite(thread)) != 0) {
      clear_rows<rows>(q, finite);
      clear_rows<rows>(d_out, finite);
      __syncthreads();
    }
    const std::int64_t first = std::int64_t{now.tile} * queries;
    const tile_step next = walk.after(now);
    if (walk.holds(next)) start(next, 1 - stage);

    accumulator scores[queries / 8], gradients[queries / 8];
#pragma unroll
    for (int n = 0; n < queries / 8; ++n) {
      scores[n] = {{taint[0].k, taint[0].k, taint[1].k, taint[1].k}};
      gradients[n] = {{taint[0].v, taint[0].v, taint[1].v, taint[1].v}};
    }
    multiply_rows<Element, keys, rows>(scores, k + of_a, q + of_b);
    multiply_rows<Element, keys, rows>(gradients, v + of_a, d_out + of_b);

    const auto query_of = [&](int n, int e) { return n * 8 + lane % 4 * 2 + e % 2; };
    const auto key_of = [&](int e) { return warp * 16 + lane / 4 + e / 2 * 8; };
    const auto place_of = [&](int n, int e) {
      return score_place{seq.index, now.head, first + query_of(n, e), key0 + key_of(e),
                         visible.mask.offset};
    };
    weigh_tile<Kind, queries / 8, false>(
        args, now.whole, place_of(0, 0),
        [&](auto kind, int n, int e, bool sees) {
          const int query = query_of(n, e);
          weigh<kind(), true, !lists_tiles<Hooks>>(args, place_of(n, e), sees, scale,
                                                   stats.shift[query], stats.correction[query],
                                                   scores[n].at[e], gradients[n].at[e]);
        },
        [&](int n, int e) {
          const int query = query_of(n, e);
          return seen_part{stats.begin[query], stats.end[query]}.holds(key_of(e));
        });
    multiply_columns<Element, rows>(d_v, scores, d_out + of_rows);
    multiply_columns<Element, rows>(d_k, gradients, q + of_rows);
    stage = 1 - stage;
    now = next;
  }
  const std::int64_t own_first = key0 + warp * 16;
  const std::uint32_t staging = k + static_cast<unsigned>(warp * 16 * keys::row_bytes);
  store_rows<Element, Width / 8>(staging, d_k, args.call.d_k, args.call.d_k_strides, seq,
                                 seq.k_begin, own_first, block.all_k, kv_head, of.softmax_scale);
  store_rows<Element, Width / 8>(staging, d_v, args.call.d_v, args.call.d_v_strides, seq,
                                 seq.k_begin, own_first, block.all_k, kv_head, 1.0f);
}

}  // namespace tessera::kernels::attention_backward::sm80
