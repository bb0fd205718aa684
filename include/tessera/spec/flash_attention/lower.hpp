// From what a caller says (views, options) to what a kernel receives (pointers, strides, scalars).
// Everything is validated here and nowhere else. A refusal is one sentence that names the tensor or
// option, the fact and both numbers ("k: head_dim is 96, q has 128"); nothing has been written
// then. A valid call allocates nothing.
//
// What is refused beyond the table in args.hpp:
// - q heads that are not a multiple of the k heads; head dims outside 1 to 256; zero heads. Zero
//   batch entries, rows, keys and sequences are legal. Strides of axes with one element are not
//   looked at.
// - packed tensors (those with cu_seqlens_*) with segments, seqlens_*, weights or dropout_mask. A
//   bias or mask of packed tensors is [N or 1, Hq or 1, rows, keys], indexed by the position inside
//   the sequence; rows and keys are 1 or at least those of the longest sequence.
// - offsets that do not start at 0, decrease, or end beyond the tensor. They may end before it: the
//   rows behind belong to no sequence.
// - an output that is read-only, whose elements share memory (see `has_distinct_elements`), or that
//   shares a byte with any other tensor (see `share_memory`; interleaved slices of one buffer that
//   do not touch are legal).
#pragma once

#include <cstdint>

#include <tessera/spec/flash_attention/args.hpp>
#include <tessera/spec/flash_attention/kernel_args.hpp>
#include <tessera/spec/flash_attention/lower_memory.hpp>
#include <tessera/spec/flash_attention/lower_options.hpp>
#include <tessera/spec/flash_attention/lower_shapes.hpp>
#include <tessera/spec/flash_attention/options.hpp>
#include <tessera/spec/flash_attention/problem.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// The shapes and options of a call, without its pointers. Copies; validates nothing.
constexpr flash_problem problem_of(const flash_attention_args& args,
                                   const flash_attention_options& options = {},
                                   flash_op op = flash_op::flash_attention) noexcept {
  return {.op = op,
          .q = args.q.shape(),
          .k = args.k.shape(),
          .v = args.v.shape(),
          .bias_pre = args.bias_pre.shape(),
          .bias_post = args.bias_post.shape(),
          .mask = args.mask.shape(),
          .q_segment_ids = args.q_segment_ids.shape(),
          .kv_segment_ids = args.kv_segment_ids.shape(),
          .sinks = args.sinks.shape(),
          .cu_seqlens_q = args.cu_seqlens_q.shape(),
          .cu_seqlens_k = args.cu_seqlens_k.shape(),
          .seqlens_q = args.seqlens_q.shape(),
          .seqlens_k = args.seqlens_k.shape(),
          .weights = args.weights.shape(),
          .options = options};
}

namespace checks {

/// The stride of an axis; 0 where it has at most one element.
constexpr std::int64_t stride_of(const tensor_view& view, int axis) noexcept {
  const auto at = static_cast<std::size_t>(axis);
  return view.extent[at] > 1 ? view.stride[at] : 0;
}

constexpr row_strides strides_of(const tensor_view& view) noexcept {
  if (view.rank == 3) return {0, stride_of(view, 0), stride_of(view, 1)};
  return {stride_of(view, 0), stride_of(view, 1), stride_of(view, 2)};
}

constexpr score_tensor scores_of(const tensor_view& view) noexcept {
  if (!view.present()) return {};
  return {view.data,          view.type,          stride_of(view, 0),
          stride_of(view, 1), stride_of(view, 2), stride_of(view, 3)};
}

constexpr row_statistics statistics_of(const tensor_view& view) noexcept {
  auto* const data = static_cast<float*>(view.data);
  if (!view.present()) return {};
  if (view.rank == 2) return {data, 0, stride_of(view, 0), stride_of(view, 1)};
  return {data, stride_of(view, 0), stride_of(view, 1), stride_of(view, 2)};
}

constexpr token_ids ids_of(const tensor_view& view) noexcept {
  if (!view.present()) return {};
  return {static_cast<const std::int32_t*>(view.data), stride_of(view, 0), stride_of(view, 1)};
}

constexpr const std::int32_t* integers_of(const tensor_view& view) noexcept {
  return view.present() ? static_cast<const std::int32_t*>(view.data) : nullptr;
}

/// Pointers and strides of a validated call.
constexpr void fill_tensors(const flash_attention_args& args, flash_kernel_args& lowered) noexcept {
  lowered.q = args.q.data;
  lowered.k = args.k.data;
  lowered.v = args.v.data;
  lowered.out = args.out.data;
  lowered.q_strides = strides_of(args.q);
  lowered.k_strides = strides_of(args.k);
  lowered.v_strides = strides_of(args.v);
  lowered.out_strides = strides_of(args.out);
  lowered.lse = statistics_of(args.lse);
  lowered.row_max = statistics_of(args.row_max);
  lowered.bias_pre = scores_of(args.bias_pre);
  lowered.bias_post = scores_of(args.bias_post);
  lowered.mask = scores_of(args.mask);
  lowered.q_segments = ids_of(args.q_segment_ids);
  lowered.kv_segments =
      ids_of(args.kv_segment_ids.present() ? args.kv_segment_ids : args.q_segment_ids);
  if (args.sinks.present()) {
    lowered.sinks = static_cast<const float*>(args.sinks.data);
    lowered.sink_head_stride = stride_of(args.sinks, 0);
    lowered.sink_stride = stride_of(args.sinks, 1);
    lowered.sink_count = static_cast<int>(args.sinks.extent[1]);
  }
  lowered.cu_seqlens_q = integers_of(args.cu_seqlens_q);
  lowered.cu_seqlens_k = integers_of(args.cu_seqlens_k);
  lowered.seqlens_q = integers_of(args.seqlens_q);
  lowered.seqlens_k = integers_of(args.seqlens_k);
  if (args.weights.present()) {
    lowered.weights = args.weights.data;
    lowered.weights_type = args.weights.type;
    lowered.weights_batch = stride_of(args.weights, 0);
    lowered.weights_head = stride_of(args.weights, 1);
    lowered.weights_row = stride_of(args.weights, 2);
  }
}

}  // namespace checks

/// Validates the tensors of a call whose options have been validated for `op` and fills everything
/// of `lowered` but the scalars of the options. What a plan does on each run.
inline status lower_tensors(flash_op op, const flash_attention_args& args,
                            const flash_attention_options& options, flash_kernel_args& lowered) {
  status failure;
  if (!checks::flash_shapes::check(op, args, options, lowered, failure) ||
      !checks::flash_memory::check(args, failure) ||
      !checks::are_contents(args, lowered, failure)) {
    return failure;
  }
  checks::fill_tensors(args, lowered);
  return failure;
}

/// Validates a call completely and fills `lowered`, whose content is unspecified after a refusal.
/// Reads the tensors' descriptions and the values of cu_seqlens_* and seqlens_*, nothing else.
inline status lower(flash_op op, const flash_attention_args& args,
                    const flash_attention_options& options, flash_kernel_args& lowered) {
  status failure;
  if (!checks::are_options(op, options, failure)) return failure;
  lowered = {};
  failure = lower_tensors(op, args, options, lowered);
  if (failure) checks::fill_options(options, lowered.head_dim, lowered);
  return failure;
}

/// Validates a problem, and gives the arguments that a call with these shapes would have; pointers
/// of present tensors are not null but point to nothing, strides are 0.
inline status lower(const flash_problem& problem, flash_kernel_args& lowered) {
  static constexpr std::uint64_t nothing = 0;
  const auto somewhere = [](const tensor_shape& shape) {
    tensor_view view;
    view.data = const_cast<std::uint64_t*>(&nothing);
    view.type = shape.type;
    view.rank = shape.rank;
    view.extent = shape.extent;
    return shape.present() ? view : tensor_view{};
  };
  flash_attention_args args{.q = somewhere(problem.q),
                            .k = somewhere(problem.k),
                            .v = somewhere(problem.v),
                            .bias_pre = somewhere(problem.bias_pre),
                            .bias_post = somewhere(problem.bias_post),
                            .mask = somewhere(problem.mask),
                            .q_segment_ids = somewhere(problem.q_segment_ids),
                            .kv_segment_ids = somewhere(problem.kv_segment_ids),
                            .sinks = somewhere(problem.sinks),
                            .cu_seqlens_q = somewhere(problem.cu_seqlens_q),
                            .cu_seqlens_k = somewhere(problem.cu_seqlens_k),
                            .seqlens_q = somewhere(problem.seqlens_q),
                            .seqlens_k = somewhere(problem.seqlens_k),
                            .out = somewhere(problem.q),
                            .weights = somewhere(problem.weights)};
  if (args.q.rank >= 1 && args.q.rank <= max_rank && args.v.rank == args.q.rank) {
    const auto last = static_cast<std::size_t>(args.q.rank - 1);
    args.out.extent[last] = args.v.extent[last];
  }
  status failure;
  lowered = {};
  if (!checks::are_options(problem.op, problem.options, failure) ||
      !checks::flash_shapes::check(problem.op, args, problem.options, lowered, failure)) {
    return failure;
  }
  checks::fill_tensors(args, lowered);
  checks::fill_options(problem.options, lowered.head_dim, lowered);
  return failure;
}

}  // namespace tessera
