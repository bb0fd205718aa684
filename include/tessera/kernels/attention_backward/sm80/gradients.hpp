// All three gradients in one pass: a block owns keys and walks through the queries of its group
// that see them. d_k and d_v stay in registers; what the block adds to d_q goes to f32 sums in
// memory, to which blocks of other keys add too, in turns or in no order.
//
// T. Dao, "FlashAttention-2", arXiv:2307.08691. Weights and gradients of scores pass through shared
// memory, since each product has another axis to sum over: warps share their operands there.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/kernels/attention_backward/sm80/gradient_tiles.hpp>
#include <tessera/kernels/attention_backward/sm80/key_block.hpp>
#include <tessera/kernels/attention_backward/sm80/products.hpp>
#include <tessera/kernels/attention_backward/sm80/query_sums.hpp>
#include <tessera/kernels/attention_backward/sm80/seen_pairs.hpp>
#include <tessera/kernels/attention_backward/sm80/tiles.hpp>
#include <tessera/kernels/attention_backward/sm80/turns.hpp>

namespace tessera::kernels::attention_backward::sm80 {

template <class Element, class Tiles, score_kind Kind, bool InTurns, class Hooks>
__global__ void __launch_bounds__(Tiles::threads, Tiles::blocks)
    all_gradients(const __grid_constant__ hooked_args<Hooks> args) {
  using keys = typename Tiles::keys;
  using values = typename Tiles::values;
  using rows = typename Tiles::rows;
  using out_rows = typename Tiles::out_rows;
  using scores = typename Tiles::scores;
  constexpr bool plain = Kind == score_kind::plain;
  // Of these scores intervals of tiles say where all pairs are seen.
  constexpr bool knows_whole = Kind != score_kind::all && !Hooks::has_mask;
  // They are made of products, and of a cap.
  constexpr bool capped = Kind == score_kind::computed && !hooked_args<Hooks>::has_functors;
  constexpr int queries = Tiles::queries, own = Tiles::own, threads = Tiles::threads;
  extern __shared__ __align__(128) unsigned char memory[];
  prim::cuda::wait_for_grid_before();
  const attention_kernel_args& of = args.call.forward;
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
  const key_block own_block =
      key_block::of<Tiles, InTurns>(args, taken_item<InTurns>(args, memory));
  if (own_block.outside()) return;
  const block_sequence& block = own_block.block;
  const prim::sequence& seq = block.seq;
  const std::int64_t key0 = own_block.key0;
  const int kv_head = own_block.kv_head, steps = own_block.steps;

  const std::uint32_t k = prim::cuda::shared_address(memory), v = k + keys::bytes;
  const std::uint32_t weights = v + values::bytes, d_scores = weights + scores::bytes;
  const std::uint32_t stages = d_scores + scores::bytes;
  auto& statistics = *reinterpret_cast<typename Tiles::statistics*>(memory + Tiles::statistics_at);
  const auto& visible = own_block.visible;
  auto next = tile_order<InTurns>::of_block(own_block, own);
  tile_interval seen_whole;
  if (knows_whole && steps > 0) seen_whole = own_block.template seen_by_all<queries, own>(args);
  const auto start = [&](int of_head, int of_tile, int stage) {
    const std::int64_t first = std::int64_t{of_tile} * queries;
    const auto left = static_cast<int>(seq.q_len - first < queries ? seq.q_len - first : queries);
    const auto used = [&](int r) { return r < left; };
    const std::uint32_t to = stages + static_cast<std::uint32_t>(stage * Tiles::stage_bytes);
    copy_tile<rows, Element, threads>(to, of.q, of.q_strides, seq, seq.q_begin + first, of_head,
                                      used);
    copy_tile<out_rows, Element, threads>(to + rows::bytes, args.call.d_out,
                                          args.call.d_out_strides, seq, seq.q_begin + first,
                                          of_head, used);
    prim::cuda::commit_copies();
  };
  const auto start_statistics = [&](int of_head, int of_tile) {
    if (thread >= queries) return;
    const std::int64_t query = std::int64_t{of_tile} * queries + thread;
    const bool used = query < seq.q_len;
    const std::int64_t from = of_head * args.rows + block.row(of, used ? query : 0);
    prim::cuda::copy_async_4(prim::cuda::shared_address(&statistics.shift[thread]),
                             args.shift + from, used);
    prim::cuda::copy_async_4(prim::cuda::shared_address(&statistics.correction[thread]),
                             args.correction + from, used);
    prim::cuda::commit_copies();
  };

  bool tainted = false;
  const auto of_keys = [&] { return args.taint + kv_head * args.keys + block.key(of, key0); };
  if (steps > 0) {
    const auto left = own_block.size();
    const auto used = [&](int r) { return r < left; };
    copy_tile<keys, Element, threads>(k, of.k, of.k_strides, seq, seq.k_begin + key0, kv_head,
                                      used);
    copy_tile<values, Element, threads>(v, of.v, of.v_strides, seq, seq.k_begin + key0, kv_head,
                                        used);
    prim::cuda::commit_copies();
    // Beside the keys, where registers are left for it.
    constexpr bool early = queries > 64;
    if constexpr (early) start_statistics(next.head, next.tile);
    start(next.head, next.tile, 0);
    prim::cuda::wait_copies<1>();
    if constexpr (!early) start_statistics(next.head, next.tile);
    tainted = has_copied_taint<keys, Element, threads>(k) ||
              has_copied_taint<values, Element, threads>(v);
  }
  tainted = __syncthreads_or(tainted) != 0;
  if (tainted) contain_taint<Element, keys, values, threads>(k, v, of_keys(), own_block.size());

  // Of scores a warp has rows from `score_row` and keys from `score_key` on; of d_q rows from
  // `sum_row` and columns from `sum_column` on; and 64 keys of either d_v or d_k.
  const int score_row = warp / Tiles::score_key_warps * Tiles::score_rows;
  const int score_key = warp % Tiles::score_key_warps * Tiles::score_keys;
  const int sum_row = warp / Tiles::sum_column_warps * Tiles::sum_rows;
  const int sum_column = warp % Tiles::sum_column_warps * Tiles::sum_columns;
  const bool of_values = warp < Tiles::half_warps;
  const int part_key = warp % Tiles::half_warps / Tiles::column_parts * 64;
  const int column_part = warp % Tiles::column_parts;
  const auto u_lane = static_cast<unsigned>(lane);
  const std::uint32_t q_of_a = rows::lane_of_a(u_lane) + score_row * rows::row_bytes;
  const std::uint32_t d_out_of_a = out_rows::lane_of_a(u_lane) + score_row * out_rows::row_bytes;
  const std::uint32_t k_of_b = k + keys::lane_of_b(u_lane) + score_key * keys::row_bytes;
  const std::uint32_t v_of_b = v + values::lane_of_b(u_lane) + score_key * values::row_bytes;
  const std::uint32_t put_at =
      scores::step(put_place<scores>(u_lane) + score_row * scores::row_bytes, 0, score_key / 16);
  const std::uint32_t own_scores = of_values ? weights : d_scores;
  const std::uint32_t d_scores_of_a =
      d_scores + scores::lane_of_a(u_lane) + sum_row * scores::row_bytes;
  const column_pairs<keys, Tiles::sum_columns> sum_columns(k + keys::lane_of_a(u_lane), sum_column);
  const column_pairs<rows, Tiles::key_columns> own_q_columns(rows::lane_of_a(u_lane),
                                                             column_part * Tiles::key_columns);
  const column_pairs<out_rows, Tiles::value_columns> own_v_columns(
      out_rows::lane_of_a(u_lane), column_part * Tiles::value_columns);

  // Scores that are calls leave no registers to look at parts of a tile.
  constexpr bool looks_at_parts = Kind != score_kind::all;
  constexpr bool looks_at_blocks = looks_at_parts && Tiles::splits_code;
  constexpr int row_parts =
      looks_at_parts ? queries / 64 : 1;  // of which some may see none of the keys
  accumulator d_keys[4][Tiles::part_columns / 8] = {};
  const float scale = of.softmax_scale * prim::log2_e * (capped ? 2.0f / of.soft_cap : 1.0f);
  const float most = of.soft_cap * prim::log2_e;
  for (int step = 0; step < steps; ++step) {
    const int stage = step % Tiles::stages;
    const std::uint32_t q = stages + static_cast<std::uint32_t>(stage * Tiles::stage_bytes);
    const std::uint32_t d_out = q + rows::bytes;
    prim::cuda::wait_copies<0>();
    // Rows without weights may hold anything, and those that are not finite reach others as shifts.
    const auto finite = [&](int r) { return statistics.shift[r] < infinite(); };
    if (__syncthreads_or(thread < queries && !finite(thread)) != 0) {
      clear_rows<rows, threads>(q, finite);
      clear_rows<out_rows, threads>(d_out, finite);
      __syncthreads();
    }
    const auto now = next;
    const std::int64_t first = std::int64_t{now.tile} * queries;
    next.advance(own_block);
    if constexpr (Tiles::stages == 2) {
      if (step + 1 < steps) start(next.head, next.tile, 1 - stage);
    }

    // `whole`: all of the tile is seen. It is a constant where such tiles have code of their own:
    // what others ask costs registers.
    const auto add_tile = [&](const auto whole) {
      constexpr int row_tiles = Tiles::score_rows / 16, key_tiles = Tiles::score_keys / 8;
      constexpr bool is_whole = std::is_same_v<decltype(whole), const std::true_type>;
      constexpr int parts = is_whole ? 1 : row_parts;
      const auto blocks = !whole && looks_at_blocks ? seen_blocks<Tiles>::of(own_block, first)
                                                    : seen_blocks<Tiles>::all();
      {
        const score_place lane_first{seq.index, now.head, first + score_row + lane / 4,
                                     key0 + score_key + lane % 4 * 2, visible.mask.offset};
        auto part = whole ? prim::tile_visibility::full : prim::tile_visibility::partial;
        if (!whole && looks_at_parts) {
          part = blocks.holds_some(score_row, Tiles::score_rows, score_key, Tiles::score_keys)
                     ? seen_pairs<Tiles>::template of_part<!looks_at_blocks>(
                           args, own_block, first + score_row, key0 + score_key)
                     : prim::tile_visibility::skip;
        }
        const bool partial = part == prim::tile_visibility::partial;
        auto seen = seen_pairs<Tiles>::all();
        if (partial) seen = seen_pairs<Tiles>::of(args, own_block, lane_first);
        if (part == prim::tile_visibility::skip) {
#pragma unroll
          for (int i = 0; i < row_tiles * key_tiles / 2; ++i) {
            const int m = i / (key_tiles / 2), n = i % (key_tiles / 2);
            put_pair<Element, scores>(weights + put_at, m, n, {}, {});
            put_pair<Element, scores>(d_scores + put_at, m, n, {}, {});
          }
        } else {
          accumulator products[row_tiles][key_tiles], gradients[row_tiles][key_tiles];
          float shift[row_tiles][2], correction[row_tiles][2];
#pragma unroll
          for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const int r = score_row + m * 16 + half * 8 + lane / 4;
              shift[m][half] = statistics.shift[r];
              correction[m][half] = statistics.correction[r];
            }
#pragma unroll
            for (int n = 0; n < key_tiles; ++n) {
              products[m][n] = {};
              const float low = plain || capped ? -correction[m][0] : 0.0f;
              const float high = plain || capped ? -correction[m][1] : 0.0f;
              gradients[m][n] = {{low, low, high, high}};
            }
          }
          multiply<Element, rows::width / 16>(
              products,
              [&](auto& reg, int m, int d) {
                prim::cuda::load_matrices(reg, rows::step(q + q_of_a, m, d));
              },
              [&](auto& reg, int d, int n) {
                prim::cuda::load_matrices(reg, keys::step(k_of_b, n, d));
              });
          multiply<Element, out_rows::width / 16>(
              gradients,
              [&](auto& reg, int m, int d) {
                prim::cuda::load_matrices(reg, out_rows::step(d_out + d_out_of_a, m, d));
              },
              [&](auto& reg, int d, int n) {
                prim::cuda::load_matrices(reg, values::step(v_of_b, n, d));
              });

          const auto each = [&](const auto& apply) {
#pragma unroll
            for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
              for (int n = 0; n < key_tiles; ++n) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                  apply(m, n, e, products[m][n].at[e], gradients[m][n].at[e]);
                }
              }
            }
          };
          if (tainted) {
            const key_taint* const taint = of_keys() + (score_key + lane % 4 * 2);
            each([&](int m, int n, int e, float& product, float& gradient) {
              if (!seen.holds(m, n, e)) return;
              product += taint[n * 8 + e % 2].k;
              gradient += taint[n * 8 + e % 2].v;
            });
          }
          if constexpr (plain) {
            each([&](int m, int, int e, float& product, float& gradient) {
              product = prim::cuda::exp2_fast(fmaf(product, scale, -shift[m][e / 2]));
              gradient *= product;
            });
          } else if constexpr (capped) {
            each([&](int m, int, int e, float& product, float& gradient) {
              const auto at_cap = prim::cuda::scaled_tanh_with_slope(product * scale);
              product = prim::cuda::exp2_fast(fmaf(at_cap.value, most, -shift[m][e / 2]));
              gradient *= product * at_cap.slope;
            });
          } else {
            each([&](int m, int n, int e, float& product, float& gradient) {
              score_place at = lane_first;
              at.query += m * 16 + e / 2 * 8;
              at.key += n * 8 + e % 2;
              weigh<Kind, true, false>(args, at, seen.holds(m, n, e), scale, shift[m][e / 2],
                                       correction[m][e / 2], product, gradient);
            });
          }
          if ((plain || capped) && partial) {
            each([&](int m, int n, int e, float& product, float& gradient) {
              if (!seen.holds(m, n, e)) product = gradient = 0.0f;
            });
          }
#pragma unroll
          for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
            for (int n = 0; n < key_tiles; n += 2) {
              put_pair<Element, scores>(weights + put_at, m, n / 2, products[m][n],
                                        products[m][n + 1]);
              put_pair<Element, scores>(d_scores + put_at, m, n / 2, gradients[m][n],
                                        gradients[m][n + 1]);
            }
          }
        }
      }
      __syncthreads();
      if (step + 1 < steps) start_statistics(next.head, next.tile);
      [[maybe_unused]] int turn = 0;
      if constexpr (InTurns) {
        // All warps have added to the tile before: each time another one waits for the fence.
        const auto last = now.before(own_block);
        if (step > 0 && threadIdx.x / 32 == static_cast<unsigned>(last.tile) % (threads / 32)) {
          turns<Tiles>::pass(args, own_block, last);
        }
        turn = turns<Tiles>::look(args, own_block, now);
      }

      const auto add_keys = [&](auto tile_of_rows, const auto& from, std::uint32_t at) {
        using operand = decltype(tile_of_rows);
        const std::uint32_t a = own_scores + scores::lane_of_b(u_lane) + part_key / 64 * 128;
#pragma unroll
        for (int part = 0; part < parts; ++part) {
          if (parts > 1 && !blocks.holds_some(part * 64, 64, 0, own)) continue;
          constexpr int depth = queries / 16 / parts;
          multiply<Element, depth>(
              d_keys,
              [&](auto& reg, int m, int r) {
                prim::cuda::load_matrices_transposed(reg, scores::step(a, part * depth + r, m));
              },
              [&](auto& reg, int r, int n) {
                prim::cuda::load_matrices_transposed(reg, at + from.at(part * depth + r, n));
              });
        }
      };
      if constexpr (Tiles::width == Tiles::value_width) {
        add_keys(rows{}, own_q_columns, of_values ? d_out : q);
      } else if (of_values) {
        add_keys(out_rows{}, own_v_columns, d_out);
      } else {
        add_keys(rows{}, own_q_columns, q);
      }

      if constexpr (Tiles::stages == 1) {
        __syncthreads();
        if (step + 1 < steps) start(next.head, next.tile, 0);
      }
      const auto wait_for_turn = [&] {
        if constexpr (InTurns) turns<Tiles>::wait(args, own_block, now, turn);
      };
      if constexpr (!Tiles::waits_late) wait_for_turn();
      if (parts == 1 || blocks.holds_some(sum_row, Tiles::sum_rows, 0, own)) {
        accumulator d_q[Tiles::sum_rows / 16][Tiles::sum_columns / 8] = {};
        multiply<Element, own / 16>(
            d_q,
            [&](auto& reg, int m, int c) {
              prim::cuda::load_matrices(reg, scores::step(d_scores_of_a, m, c));
            },
            [&](auto& reg, int c, int n) {
              prim::cuda::load_matrices_transposed(reg, sum_columns.at(c, n));
            });
        if constexpr (Tiles::waits_late) wait_for_turn();
        using all_sums = query_sums<Tiles>;
        float* const sums = all_sums::place_of(all_sums::tile_of(args, seq, now.head, now.tile),
                                               sum_row / 16, sum_column / 8);
#pragma unroll
        for (int m = 0; m < Tiles::sum_rows / 16; ++m) {
#pragma unroll
          for (int n = 0; n < Tiles::sum_columns / 8; ++n) {
            all_sums::add(sums, m, n, lane, d_q[m][n]);
          }
        }
      } else if constexpr (Tiles::waits_late) {
        wait_for_turn();
      }
    };
    const bool whole =
        knows_whole && !tainted && now.tile >= seen_whole.begin && now.tile < seen_whole.end;
    if constexpr (!Tiles::splits_code) {
      add_tile(whole);
    } else if (whole) {
      add_tile(std::bool_constant<knows_whole>{});
    } else {
      add_tile(std::false_type{});
    }
  }
  __syncthreads();  // stages are free behind the last products
  if constexpr (InTurns) {
    if (steps > 0 && warp == 0) turns<Tiles>::pass(args, own_block, next.before(own_block));
  }
  const std::uint32_t staging =
      stages + static_cast<unsigned>(warp) * stored_rows<Tiles::part_columns / 8>::bytes;
#pragma unroll
  for (int m = 0; m < 4; ++m) {
    const std::int64_t own_first = key0 + part_key + m * 16;
    if (of_values) {
      store_rows<Element, Tiles::value_columns / 8>(
          staging, d_keys[m], args.call.d_v, args.call.d_v_strides, seq, seq.k_begin, own_first,
          block.all_k, kv_head, 1.0f, column_part * Tiles::value_columns);
    } else {
      store_rows<Element, Tiles::key_columns / 8>(
          staging, d_keys[m], args.call.d_k, args.call.d_k_strides, seq, seq.k_begin, own_first,
          block.all_k, kv_head, of.softmax_scale, column_part * Tiles::key_columns);
    }
  }
}

}  // namespace tessera::kernels::attention_backward::sm80
