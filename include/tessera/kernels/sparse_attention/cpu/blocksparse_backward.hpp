// Gradients of blocksparse attention by the dense kernels, whose loops go over the tiles that are
// seen: who sees whom is their mask functor. With nothing hidden the bits are those of the dense
// row. Rows for any type have the dense row of f32: other tensors are read to floats and written
// from them.
//
// There, heads of a group that have masks of their own have launches of their own, whose gradients
// of keys and values are added up in the order of the heads. In rows with a type they stay rows of
// one tile, which sees what some head sees: sums of rounded gradients would lose digits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/families/attention_backward/config.hpp>
#include <tessera/families/attention_backward/kernel_args.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/kernels/attention/cpu/mask_hooks.hpp>
#include <tessera/kernels/attention_backward/cpu/launch.hpp>
#include <tessera/kernels/sparse_attention/common/dense_call.hpp>
#include <tessera/kernels/sparse_attention/cpu/float_rows.hpp>
#include <tessera/kernels/sparse_attention/cpu/visible_pairs.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/launch_context.hpp>

namespace tessera::kernels::sparse_attention::cpu {

/// Who sees whom as gradients ask, tile by tile and row by row: `visible_pairs` of any functor, so
/// that the dense loops are compiled once for all of them. A tile of keys is one step, with its
/// holes.
template <class Isa>
class gradient_pairs {
 public:
  /// Tiles of rows may begin at multiples of `whole_rows`.
  template <class Pairs>
  static gradient_pairs of(const Pairs& pairs, int whole_rows) {
    gradient_pairs made;
    made.pairs_ = &pairs;
    const std::int64_t rows = pairs.rows_of_block();
    made.rows_of_block_ = rows % whole_rows == 0 ? rows : 0;
    made.classify_ = [](const void* of, const prim::score_tile& tile) {
      return static_cast<const Pairs*>(of)->classify(tile);
    };
    made.first_run_ = [](const void* of, const prim::score_tile& tile) {
      return static_cast<const Pairs*>(of)->first_run(tile);
    };
    made.hide_row_ = [](const void* of, const position& at, std::int64_t key0, int begin, int end,
                        float* scores) {
      static_cast<const Pairs*>(of)->hide_row(at, key0, begin, end, scores);
    };
    return made;
  }

  prim::tile_visibility classify(const prim::score_tile& tile) const {
    return classify_(pairs_, tile);
  }
  std::int64_t rows_of_block() const { return rows_of_block_; }
  void hide_row(const position& at, std::int64_t key0, int begin, int end, float* scores) const {
    hide_row_(pairs_, at, key0, begin, end, scores);
  }
  attention::cpu::key_run bounds_of_seen(const prim::score_tile& tile) const {
    using enum prim::tile_visibility;
    attention::cpu::key_run all = first_run_(pairs_, tile);
    prim::score_tile rest = tile;
    while (all.seen != skip) {
      rest.key_begin = all.keys.end;
      const attention::cpu::key_run next = first_run_(pairs_, rest);
      if (next.seen == skip) break;
      all = {{all.keys.begin, next.keys.end}, partial};
    }
    return all;
  }

 private:
  const void* pairs_ = nullptr;
  std::int64_t rows_of_block_ = 0;
  prim::tile_visibility (*classify_)(const void*, const prim::score_tile&) = nullptr;
  attention::cpu::key_run (*first_run_)(const void*, const prim::score_tile&) = nullptr;
  void (*hide_row_)(const void*, const position&, std::int64_t, int, int, float*) = nullptr;
};

/// The row of gradients of attention that a row of blocksparse attention stands on.
template <backend Target, dtype Type>
struct dense_gradient_row {
  static constexpr attention_backward_config config{.target = Target, .type = Type};
};

template <class Kernel, class Mask = prim::no_mask_functor>
class blocksparse_backward {
  static constexpr bool any_type = Kernel::config.type == dtype::none;
  static constexpr dtype type = any_type ? dtype::f32 : Kernel::config.type;
  /// Instructions of bf16 do not help floats.
  static constexpr backend target = any_type && has_bf16_products(Kernel::config.target)
                                        ? backend::cpu_avx512
                                        : Kernel::config.target;
  using isa_type = typename isa::of<target>::type;
  using pairs_type = visible_pairs<isa_type, Mask>;
  using hooks_type = flash_hooks<prim::no_logit_modifier, gradient_pairs<isa_type>>;
  using row = attention_backward::cpu::hooked_row<dense_gradient_row<target, type>, hooks_type>;

 public:
  explicit blocksparse_backward(const blocksparse_kernel_args& args, const Mask& mask = {})
      : args_(args), mask_(mask), parts_(any_type ? parts_in<isa_type>(args) : 1) {}

  std::size_t workspace_bytes(int threads) const {
    prim::float_carver memory(nullptr);
    const launch_memory launch(args_, parts_, memory);
    const blocksparse_kernel_args part = part_of_floats(launch, 0);
    const pairs_type pairs(part, mask_, memory);
    return memory.bytes() + dense_bytes(part, pairs, threads);
  }

  void run(std::byte* workspace, int threads) const {
    prim::float_carver memory(workspace);
    const launch_memory launch(args_, parts_, memory);
    for (const rows_type* each : launch.inputs()) each->read(threads);
    for (std::int64_t number = 0; number < parts_; ++number) {
      prim::float_carver of_part = memory;
      run_part(launch, number, of_part, workspace, threads);
      if (number == 0) continue;
      launch.d_k.add(launch.share_of_d_k, threads);
      launch.d_v.add(launch.share_of_d_v, threads);
    }
    for (const rows_type* each : {&launch.d_q, &launch.d_k, &launch.d_v}) each->write(threads);
    if (launch.share_of_sinks != nullptr) add_sinks(launch);
  }

 private:
  using rows_type = float_rows<isa_type>;

  /// Tensors as floats. With several parts, what the parts behind the first add to gradients of
  /// keys and values, and gradients of sinks that all heads share.
  struct launch_memory {
    launch_memory(const blocksparse_kernel_args& args, std::int64_t parts,
                  prim::float_carver& memory)
        : q(args.q, queries(args, args.head_dim), type, false, memory),
          k(args.k, keys(args, args.head_dim), type, false, memory),
          v(args.v, keys(args, args.v_head_dim), type, false, memory),
          out(args.out, queries(args, args.v_head_dim), type, false, memory),
          d_out(args.d_out, queries(args, args.v_head_dim), type, false, memory),
          d_q(args.d_q, queries(args, args.head_dim), type, false, memory),
          d_k(args.d_k, keys(args, args.head_dim), type, parts > 1, memory),
          d_v(args.d_v, keys(args, args.v_head_dim), type, parts > 1, memory),
          share_of_d_k(
              parts > 1 ? rows_type(args.d_k, keys(args, args.head_dim), type, true, memory) : d_k),
          share_of_d_v(parts > 1
                           ? rows_type(args.d_v, keys(args, args.v_head_dim), type, true, memory)
                           : d_v) {
      if (parts > 1 && args.d_sinks.data != nullptr && args.sink_rows == 1) {
        share_of_sinks = memory.take(parts * args.sink_count);
      }
    }
    std::array<const rows_type*, 5> inputs() const { return {&q, &k, &v, &out, &d_out}; }

    static row_extents queries(const blocksparse_kernel_args& args, std::int64_t width) {
      return {args.batch, args.q_heads, args.q_len, width};
    }
    static row_extents keys(const blocksparse_kernel_args& args, std::int64_t width) {
      return {args.batch, args.kv_heads, args.kv_len, width};
    }
    rows_type q, k, v, out, d_out, d_q, d_k, d_v, share_of_d_k, share_of_d_v;
    float* share_of_sinks = nullptr;  ///< [parts, sinks]
  };

  /// The part with floats for tensors.
  blocksparse_kernel_args part_of_floats(const launch_memory& launch, std::int64_t number) const {
    blocksparse_kernel_args call = args_;
    call.q = launch.q.floats();
    call.k = launch.k.floats();
    call.v = launch.v.floats();
    call.out = launch.out.floats();
    blocksparse_kernel_args part = parts_ == 1 ? call : part_of<isa_type>(call, number);
    const auto heads = [&](const auto& tensor) {
      return heads_of<isa_type>(tensor, number, parts_);
    };
    part.d_out = heads(launch.d_out.floats());
    part.d_q = heads(launch.d_q.floats());
    part.d_lse = heads(args_.d_lse);
    part.d_k = (number == 0 ? launch.d_k : launch.share_of_d_k).floats();
    part.d_v = (number == 0 ? launch.d_v : launch.share_of_d_v).floats();
    if (launch.share_of_sinks != nullptr) {
      part.d_sinks = {launch.share_of_sinks + number * args_.sink_count, 0, 1};
    } else if (args_.sink_rows != 1) {
      part.d_sinks = heads(args_.d_sinks);
      part.sink_rows = part.q_heads;
    }
    return part;
  }

  static hooks_type hooks_of(const pairs_type& pairs) {
    return hooks_type(
        {}, gradient_pairs<isa_type>::of(pairs, attention_backward::cpu::traits<row>::whole_rows));
  }
  static std::size_t dense_bytes(const blocksparse_kernel_args& part, const pairs_type& pairs,
                                 int threads) {
    return attention_backward::cpu::workspace_bytes_with<row>(dense_gradient_call<isa_type>(part),
                                                              hooks_of(pairs), threads);
  }

  void run_part(const launch_memory& launch, std::int64_t number, prim::float_carver& memory,
                std::byte* workspace, int threads) const {
    const blocksparse_kernel_args part = part_of_floats(launch, number);
    prim::float_carver of_bounds = memory;
    pairs_type(part, mask_, of_bounds).prepare(threads);
    blocksparse_kernel_args hidden = part;
    leave_to_dense_kernels<isa_type>(part, hidden);
    const pairs_type pairs(hidden, mask_, memory, static_cast<int>(number),
                           static_cast<int>(parts_));
    // Its workspace is what it asks for: nothing is refused.
    static_cast<void>(attention_backward::cpu::launch_with<row>(
        dense_gradient_call<isa_type>(part), hooks_of(pairs),
        {threads, workspace + memory.bytes(), dense_bytes(part, pairs, threads)}));
  }

  void add_sinks(const launch_memory& launch) const {
    for (std::int64_t sink = 0; sink < args_.sink_count; ++sink) {
      double sum = 0;
      for (std::int64_t number = 0; number < parts_; ++number) {
        sum += static_cast<double>(launch.share_of_sinks[number * args_.sink_count + sink]);
      }
      args_.d_sinks.data[sink * args_.d_sinks.sink] = static_cast<float>(sum);
    }
  }

  const blocksparse_kernel_args args_;
  const Mask mask_;
  const std::int64_t parts_;
};

}  // namespace tessera::kernels::sparse_attention::cpu
