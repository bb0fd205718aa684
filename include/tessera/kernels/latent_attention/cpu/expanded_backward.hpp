// Gradients of attention whose keys and values are made of latents. A pair is a batch entry and a
// key/value head:
//
//   for as many pairs at a time as there are threads {
//     for each tile of keys { expand }
//     for each pair { for each block of rows { for each tile of keys {
//       weights and gradients of scores; d_q += d_s K; d_k += d_s^T Q; d_v += P^T d_out } } }
//     d_bias += d_s; d_ckv += d_k w_kc^T + d_v w_vc^T; d_w_kc += ckv^T d_k; d_w_vc += ckv^T d_v
//   }
//
// What belongs to several pairs is summed in their order, so no bit depends on threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <tessera/kernels/latent_attention/cpu/backward_memory.hpp>
#include <tessera/kernels/latent_attention/cpu/gradient_block.hpp>
#include <tessera/kernels/latent_attention/cpu/latent_gradients.hpp>
#include <tessera/kernels/latent_attention/cpu/score_gradients.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::latent_attention::cpu {

template <class Kernel>
class expanded_backward {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;
  using vec = typename shape::vec;

 public:
  explicit expanded_backward(const latent_attention_kernel_args& args) : args_(args), of_(args) {}

  std::size_t workspace_bytes(int threads) const {
    return launch_sums<Kernel>(args_, nullptr).bytes +
           pair_memory<Kernel>(args_, nullptr, wave(threads)).bytes +
           static_cast<std::size_t>(threads) * backward_scratch<Kernel>(args_, nullptr).bytes;
  }

  void run(std::byte* workspace, int threads) const {
    const launch_sums<Kernel> sums(args_, workspace);
    const pair_memory<Kernel> pairs(args_, workspace + sums.bytes, wave(threads));
    const team on{workspace + sums.bytes + pairs.bytes,
                  backward_scratch<Kernel>(args_, nullptr).bytes, threads};
    sums.clear();
    compute_corrections(sums, on);
    const std::int64_t most = wave(threads);
    for (std::int64_t first = 0; first < of_.pairs; first += most) {
      run_wave(sums, pairs, first, std::min(most, of_.pairs - first), on);
    }
    const latent_gradients<Kernel> latents(args_, sums, pairs);
    prim::parallel_items<isa_type>(args_.entries * args_.length, threads,
                                   [&](std::int64_t item, int) {
                                     latents.store_tokens(item / args_.length, item % args_.length);
                                   });
    prim::parallel_items<isa_type>(args_.kv_heads, threads, [&](std::int64_t kv_head, int) {
      latents.store_weights(kv_head);
    });
    if (args_.d_bias.data != nullptr) store_bias<Kernel>(args_.d_bias, sums.d_bias);
    if (args_.d_sinks != nullptr) store_sinks<Kernel>(args_, sums.correction);
  }

 private:
  std::int64_t wave(int threads) const {
    return latent_schedule::wave(of_.pairs, pair_memory<Kernel>(args_, nullptr, 1).bytes, threads);
  }
  std::int64_t entry_of(std::int64_t pair) const { return pair / args_.kv_heads; }
  std::int64_t kv_head_of(std::int64_t pair) const { return pair % args_.kv_heads; }

  /// The threads of a launch, and where the scratch memory of each lies.
  struct team {
    std::byte* base;
    std::size_t step;
    int threads;
  };
  /// Calls body(item, scratch memory).
  template <class Body>
  void in_parallel(std::int64_t items, const team& on, const Body& body) const {
    prim::parallel_items<isa_type>(items, on.threads, [&](std::int64_t item, int thread) {
      body(item,
           backward_scratch<Kernel>(args_, on.base + static_cast<std::size_t>(thread) * on.step));
    });
  }

  query_rows<Kernel> block_of(std::int64_t pair, std::int64_t begin, std::int64_t end) const {
    const prim::sequence seq{.index = entry_of(pair), .q_len = args_.length, .k_len = args_.length};
    return {args_, seq, kv_head_of(pair), begin, static_cast<int>(end - begin)};
  }

  /// sum of d_out out - d_lse for each query row; 0 where it sees nothing.
  void compute_corrections(const launch_sums<Kernel>& sums, const team& on) const {
    in_parallel(of_.pairs, on, [&](std::int64_t pair, const backward_scratch<Kernel>& scratch) {
      for (std::int64_t begin = 0; begin < of_.rows; begin += shape::block_rows) {
        const auto rows =
            block_of(pair, begin, std::min<std::int64_t>(begin + shape::block_rows, of_.rows));
        for (int r = 0; r < rows.count(); ++r) {
          if (*rows.at(args_.lse, r) == prim::minus_infinity) continue;
          prim::load_row<isa_type>(args_.out, rows.at(args_.out, r), args_.value,
                                   scratch.block.row);
          prim::load_row<isa_type>(args_.d_out, rows.at(args_.d_out, r), args_.value,
                                   scratch.block.value);
          auto sum = vec::zero();
          for (std::int64_t d = 0; d < args_.value; d += vec::width) {
            sum =
                vec::fma(vec::load(scratch.block.row + d), vec::load(scratch.block.value + d), sum);
          }
          float correction = vec::sum(sum);
          if (args_.d_lse.data != nullptr) correction -= *rows.at(args_.d_lse, r);
          sums.correction[place_of(pair, rows.row(r))] = correction;
        }
      }
    });
  }
  /// Of a row among the corrections.
  std::int64_t place_of(std::int64_t pair, const query_row& row) const {
    return (entry_of(pair) * args_.heads + row.head) * args_.length + row.token;
  }
  void load_corrections(const launch_sums<Kernel>& sums, std::int64_t pair,
                        const query_rows<Kernel>& rows, float* to) const {
    for (int r = 0; r < rows.count(); ++r) to[r] = sums.correction[place_of(pair, rows.row(r))];
  }

  void run_wave(const launch_sums<Kernel>& sums, const pair_memory<Kernel>& pairs,
                std::int64_t first, std::int64_t count, const team& on) const {
    using scratch_type = const backward_scratch<Kernel>&;
    const latent_gradients<Kernel> latents(args_, sums, pairs);
    in_parallel(count, on, [&](std::int64_t pair, scratch_type scratch) {
      pairs.weights_of(pair).pack(args_, kv_head_of(first + pair), scratch.expand);
      latents.transpose_weights(pair, kv_head_of(first + pair), scratch);
    });
    in_parallel(count * of_.tiles, on, [&](std::int64_t item, scratch_type scratch) {
      expand_tile(pairs, first, item / of_.tiles, item % of_.tiles, scratch);
    });
    in_parallel(count, on, [&](std::int64_t pair, scratch_type scratch) {
      run_pair(sums, pairs, first, pair, scratch);
    });
    if (args_.d_bias.data != nullptr) {
      const score_sums<Kernel> bias(args_);
      in_parallel(bias.items(), on, [&](std::int64_t item, scratch_type scratch) {
        for (std::int64_t pair = 0; pair < count; ++pair) {
          add_bias(sums, pairs, bias, item, first, pair, scratch);
        }
      });
    }
    // The pairs of an entry lie side by side, those of a head kv_heads apart.
    const std::int64_t first_entry = entry_of(first), last_entry = entry_of(first + count - 1);
    const std::int64_t heads = args_.kv_heads;
    in_parallel((last_entry - first_entry + 1) * of_.tiles, on,
                [&](std::int64_t item, scratch_type scratch) {
                  const std::int64_t entry = first_entry + item / of_.tiles;
                  const std::int64_t end = std::min((entry + 1) * heads - first, count);
                  std::int64_t pair = std::max<std::int64_t>(entry * heads - first, 0);
                  for (; pair < end; ++pair) {
                    latents.add_tokens(pair, entry, item % of_.tiles, scratch);
                  }
                });
    in_parallel(heads, on, [&](std::int64_t kv_head, scratch_type scratch) {
      std::int64_t pair = (kv_head - kv_head_of(first) + heads) % heads;
      for (; pair < count; pair += heads) {
        latents.add_weights(pair, entry_of(first + pair), kv_head, scratch);
      }
    });
  }

  void expand_tile(const pair_memory<Kernel>& pairs, std::int64_t first, std::int64_t pair,
                   std::int64_t number, const backward_scratch<Kernel>& scratch) const {
    const gradient_tile<Kernel> tile = pairs.tile(pair, number);
    const expand_scratch<Kernel>& rows = scratch.expand;
    const std::int64_t stride = expand_scratch<Kernel>::key_stride(args_);
    expand(args_, pairs.weights_of(pair), entry_of(first + pair), tile.keys, rows);
    pack_key_columns<Kernel>(rows.keys, stride, tile.keys.count, tile.k_columns);
    pack_key_columns<Kernel>(rows.values, of_.value_columns, tile.keys.count, tile.v_columns);
    static_cast<void>(pack_finite_rows<Kernel>(rows.keys, stride, tile.keys.count,
                                               scratch.nonfinite, tile.k_rows));
  }

  /// All rows of a pair against the tiles that they see: d_q, and sums of d_k and d_v.
  void run_pair(const launch_sums<Kernel>& sums, const pair_memory<Kernel>& pairs,
                std::int64_t first, std::int64_t pair,
                const backward_scratch<Kernel>& scratch) const {
    std::fill_n(pairs.d_k_row(pair, 0), args_.length * of_.key_columns, 0.0f);
    std::fill_n(pairs.d_v_row(pair, 0), args_.length * of_.value_columns, 0.0f);
    if (args_.shared_rope) {
      std::fill_n(pairs.d_q_pe_row(pair, 0), args_.length * of_.rope_columns, 0.0f);
    }
    for (std::int64_t begin = 0; begin < of_.rows; begin += shape::block_rows) {
      const auto rows = block_of(first + pair, begin,
                                 std::min<std::int64_t>(begin + shape::block_rows, of_.rows));
      load_corrections(sums, first + pair, rows, scratch.corrections);
      const gradient_block<Kernel> block(args_, rows, scratch.corrections, scratch.block);
      for_each_tile(pairs, pair, rows, [&](const gradient_tile<Kernel>& tile) {
        block.compute(tile);
        block.add_to_queries(tile);
        block.add_to_keys(tile, pairs.d_k_row(pair, tile.keys.key0),
                          pairs.d_v_row(pair, tile.keys.key0));
      });
      for (int r = 0; r < rows.count(); ++r) store_query(rows, r, block.d_q(r), pairs, pair);
    }
  }

  void store_query(const query_rows<Kernel>& rows, int r, const float* d_q,
                   const pair_memory<Kernel>& pairs, std::int64_t pair) const {
    prim::store_row<isa_type>(args_.d_q, rows.at(args_.d_q, r), args_.nope, d_q);
    const float* const rope = d_q + args_.nope;
    if (args_.rope == 0) return;
    if (!args_.shared_rope) {
      prim::store_row<isa_type>(args_.d_q_pe, rows.at(args_.d_q_pe, r), args_.rope, rope);
      return;
    }
    float* const sum = pairs.d_q_pe_row(pair, rows.row(r).token);
    for (std::int64_t d = 0; d < args_.rope; ++d) sum[d] += rope[d];
  }

  template <class Body>
  void for_each_tile(const pair_memory<Kernel>& pairs, std::int64_t pair,
                     const query_rows<Kernel>& rows, const Body& body) const {
    const prim::key_interval seen = rows.keys_of_some();
    for (std::int64_t number = seen.begin / shape::block_keys;
         number * shape::block_keys < seen.end; ++number) {
      const gradient_tile<Kernel> tile = pairs.tile(pair, number);
      if (!rows.lists_none_of(tile.keys.key0, tile.keys.count)) body(tile);
    }
  }

  /// What a pair has for the tokens of one item of the bias.
  void add_bias(const launch_sums<Kernel>& sums, const pair_memory<Kernel>& pairs,
                const score_sums<Kernel>& bias, std::int64_t item, std::int64_t first,
                std::int64_t pair, const backward_scratch<Kernel>& scratch) const {
    const auto tokens = bias.tokens_of(item);
    const std::int64_t end = tokens.end * of_.group;
    for (std::int64_t begin = tokens.begin * of_.group; begin < end; begin += shape::block_rows) {
      const auto rows =
          block_of(first + pair, begin, std::min<std::int64_t>(begin + shape::block_rows, end));
      load_corrections(sums, first + pair, rows, scratch.corrections);
      const gradient_block<Kernel> block(args_, rows, scratch.corrections, scratch.block);
      for_each_tile(pairs, pair, rows, [&](const gradient_tile<Kernel>& tile) {
        block.compute(tile);
        for (int r = 0; r < rows.count(); ++r) {
          bias.add(rows, r, tile.keys, block.d_scores(r), sums.d_bias);
        }
      });
    }
  }

  const latent_attention_kernel_args& args_;
  backward_extents<Kernel> of_;
};

}  // namespace tessera::kernels::latent_attention::cpu
