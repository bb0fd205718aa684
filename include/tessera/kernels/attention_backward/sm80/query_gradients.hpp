// d_q: a block owns 128 queries of one head and walks through the keys that they see.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention_backward/sm80/tile_walk.hpp>
#include <tessera/kernels/attention_backward/sm80/tiles.hpp>

namespace tessera::kernels::attention_backward::sm80 {

template <int Width>
struct query_tiles {
  static constexpr int count = 64;  ///< keys of a tile
  using rows = prim::cuda::shared_tile<own_rows, Width>;
  using keys = prim::cuda::shared_tile<count, Width>;
  static constexpr int stage_bytes = 2 * keys::bytes + count * static_cast<int>(sizeof(key_taint));
  static constexpr int shared_bytes = 2 * rows::bytes + 2 * stage_bytes;
};

template <class Element, int Width, score_kind Kind, class Hooks>
__global__ void __launch_bounds__(threads, 1)
    query_gradients(const __grid_constant__ hooked_args<Hooks> args) {
  using tiles = query_tiles<Width>;
  using keys = typename tiles::keys;
  using rows = typename tiles::rows;
  constexpr int count = tiles::count;
  extern __shared__ __align__(128) unsigned char memory[];
  const attention_kernel_args& of = args.call.forward;
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32, warp = thread / 32;
  const std::int64_t item = blockIdx.x;
  const int head = static_cast<int>(item % of.q_heads);
  // Later queries see more keys where there is a diagonal: they come first.
  const std::int64_t first = (args.tiles - 1 - item / of.q_heads % args.tiles) * own_rows;
  const block_sequence block = block_sequence::of(of, item / of.q_heads / args.tiles);
  const prim::sequence& seq = block.seq;
  if (first >= block.all_q) return;

  const std::uint32_t q = prim::cuda::shared_address(memory), d_out = q + rows::bytes;
  const std::uint32_t stages = d_out + rows::bytes;
  const auto visible = kernels::attention::visibility_of<mask_mode::window>(of, seq);
  const int kv_head = head / kernels::attention::group_of(of);
  const std::int64_t end = first + own_rows < seq.q_len ? first + own_rows : seq.q_len;
  prim::key_interval seen_by{};
  if (first < end) seen_by = visible.keys_of(first, end - 1).some;
  const std::int64_t place = head * args.rows + block.row(of, first);
  const auto taints_of = [&](int stage) {
    return reinterpret_cast<key_taint*>(memory + 2 * rows::bytes + stage * tiles::stage_bytes +
                                        2 * keys::bytes);
  };
  const tile_interval own_tiles{static_cast<int>(seen_by.begin / count),
                                static_cast<int>((seen_by.end + count - 1) / count)};
  const auto look_at = [&](int of_head, int tile) {
    const std::int64_t key0 = std::int64_t{tile} * count;
    const std::int64_t stop = key0 + count < seq.k_len ? key0 + count : seq.k_len;
    return seen_of_tile(args, seq.index, of_head, {first, end}, {key0, stop});
  };
  __shared__ tile_words words;
  tile_walk<lists_tiles<Hooks>, true, decltype(look_at)> walk(own_tiles, head + 1, words, look_at);
  const auto start = [&](const tile_step& step, int stage) {
    const std::int64_t key0 = std::int64_t{step.tile} * count;
    const key_taint* const of_keys = args.taint + kv_head * args.keys + block.key(of, key0);
    const auto left = static_cast<int>(seq.k_len - key0 < count ? seq.k_len - key0 : count);
    const std::uint32_t to = stages + static_cast<std::uint32_t>(stage * tiles::stage_bytes);
    const auto used = [&](int r) { return r < left; };
    copy_tile<keys, Element>(to, of.k, of.k_strides, seq, seq.k_begin + key0, kv_head, used);
    copy_tile<keys, Element>(to + keys::bytes, of.v, of.v_strides, seq, seq.k_begin + key0, kv_head,
                             used);
    if (thread < count) {
      const key_taint* const from = of_keys + (thread < left ? thread : 0);
      key_taint* const taint = taints_of(stage) + thread;
      prim::cuda::copy_async_4(prim::cuda::shared_address(&taint->k), &from->k, thread < left);
      prim::cuda::copy_async_4(prim::cuda::shared_address(&taint->v), &from->v, thread < left);
    }
    prim::cuda::commit_copies();
  };

  accumulator d_q[Width / 8] = {};
  float shift[2], correction[2];
  prim::key_interval of_row[2];
  for (int half = 0; half < 2; ++half) {
    const int r = warp * 16 + lane / 4 + 8 * half;
    const bool used = first + r < seq.q_len;
    shift[half] = used ? args.shift[place + r] : infinite();
    correction[half] = used ? args.correction[place + r] : 0.0f;
    if (used) of_row[half] = visible.keys_of(first + r);
  }
  tile_step now = walk.first_of(head);
  int stage = 0;
  if (walk.holds(now)) {
    const auto alive = [&](int r) {
      return first + r < seq.q_len && args.shift[place + r] < infinite();
    };
    copy_tile<rows, Element>(q, of.q, of.q_strides, seq, seq.q_begin + first, head, alive);
    copy_tile<rows, Element>(d_out, args.call.d_out, args.call.d_out_strides, seq,
                             seq.q_begin + first, head, alive);
    start(now, stage);
  }
  const float scale = of.softmax_scale * prim::log2_e;
  const std::uint32_t of_a = rows::lane_of_a(static_cast<unsigned>(lane)) +
                             static_cast<unsigned>(warp * 16 * rows::row_bytes);
  const std::uint32_t of_b = keys::lane_of_b(static_cast<unsigned>(lane));
  while (walk.holds(now)) {
    const std::int64_t key0 = std::int64_t{now.tile} * count;
    const std::uint32_t k = stages + static_cast<std::uint32_t>(stage * tiles::stage_bytes);
    const std::uint32_t v = k + keys::bytes;
    const key_taint* const taint = taints_of(stage);
    prim::cuda::wait_copies<0>();
    const key_taint mine = thread < count ? taint[thread] : key_taint{};
    if (__syncthreads_or(mine.k != 0.0f || mine.v != 0.0f) != 0) {
      clear_rows<keys>(k, [&](int r) { return taint[r].k == 0.0f; });
      clear_rows<keys>(v, [&](int r) { return taint[r].v == 0.0f; });
      __syncthreads();
    }
    const tile_step next = walk.after(now);
    if (walk.holds(next)) start(next, 1 - stage);

    accumulator scores[count / 8], gradients[count / 8];
#pragma unroll
    for (int n = 0; n < count / 8; ++n) {
      const key_taint* const of_two = taint + n * 8 + lane % 4 * 2;
      scores[n] = {{of_two[0].k, of_two[1].k, of_two[0].k, of_two[1].k}};
      gradients[n] = {{of_two[0].v, of_two[1].v, of_two[0].v, of_two[1].v}};
    }
    multiply_rows<Element, rows, keys>(scores, q + of_a, k + of_b);
    multiply_rows<Element, rows, keys>(gradients, d_out + of_a, v + of_b);

    const seen_part seen[2] = {seen_part::of(of_row[0], key0, count),
                               seen_part::of(of_row[1], key0, count)};
    const auto key_of = [&](int n, int e) { return n * 8 + lane % 4 * 2 + e % 2; };
    const auto place_of = [&](int n, int e) {
      return score_place{seq.index, head, first + warp * 16 + lane / 4 + e / 2 * 8,
                         key0 + key_of(n, e), visible.mask.offset};
    };
    weigh_tile<Kind, count / 8, true>(
        args, now.whole, place_of(0, 0),
        [&](auto kind, int n, int e, bool sees) {
          weigh<kind(), false, !lists_tiles<Hooks>>(args, place_of(n, e), sees, scale, shift[e / 2],
                                                    correction[e / 2], scores[n].at[e],
                                                    gradients[n].at[e]);
        },
        [&](int n, int e) { return seen[e / 2].holds(key_of(n, e)); });
    multiply_columns<Element, keys>(d_q, gradients,
                                    k + keys::lane_of_a(static_cast<unsigned>(lane)));
    stage = 1 - stage;
    now = next;
  }
  store_rows<Element, Width / 8>(q + static_cast<unsigned>(warp * 16 * rows::row_bytes), d_q,
                                 args.call.d_q, args.call.d_q_strides, seq, seq.q_begin,
                                 first + warp * 16, block.all_q, head, of.softmax_scale);
}

}  // namespace tessera::kernels::attention_backward::sm80
