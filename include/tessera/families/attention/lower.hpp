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
// - tensors on different devices. Of tensors in a GPU's memory only the descriptions are looked at:
//   the values of cu_seqlens_* and seqlens_* there are the caller's to keep within these rules.
#pragma once

#include <cstdint>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/lower_memory.hpp>
#include <tessera/families/attention/lower_options.hpp>
#include <tessera/families/attention/lower_shapes.hpp>
#include <tessera/families/attention/options.hpp>
#include <tessera/families/attention/problem.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace checks {

/// True if every row of the tensor, along its last axis, starts at a multiple of 16 bytes.
inline bool rows_are_aligned(const tensor_view& view) noexcept {
  constexpr std::uint64_t chunk = 16;
  if (reinterpret_cast<std::uintptr_t>(view.data) % chunk != 0) return false;
  for (int axis = 0; axis < view.rank - 1 && axis < max_rank; ++axis) {
    const auto index = static_cast<std::size_t>(axis);
    const auto step = static_cast<std::uint64_t>(view.stride[index]) * size_of(view.type);
    if (view.extent[index] > 1 && step % chunk != 0) return false;
  }
  return true;
}

/// See flash_problem::unaligned.
inline bool are_unaligned(const flash_attention_args& args) noexcept {
  return args.q.device.kind == device_kind::cuda &&
         !(rows_are_aligned(args.q) && rows_are_aligned(args.k) && rows_are_aligned(args.v));
}

}  // namespace checks

/// The shapes and options of a call, without its pointers. Copies; validates nothing.
inline flash_problem problem_of(const flash_attention_args& args,
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
          .unaligned = checks::are_unaligned(args),
          .options = options};
}

namespace checks {

// Each field is stored where it belongs: structs returned by value were measured to cost 50 ns a
// call in stores that are read back too soon.

constexpr void fill(row_strides& to, const tensor_view& view) noexcept {
  const int rows = view.rank - 3;  // the axis of rows; packed tensors have no axis before it
  to.batch = rows > 0 ? stride_of(view, 0) : 0;
  to.row = stride_of(view, rows);
  to.head = stride_of(view, rows + 1);
}

constexpr void fill(score_tensor& to, const tensor_view& view) noexcept {
  to = {};
  if (!view.present()) return;
  to.data = view.data;
  to.type = view.type;
  to.batch = stride_of(view, 0);
  to.head = stride_of(view, 1);
  to.row = stride_of(view, 2);
  to.column = stride_of(view, 3);
}

constexpr void fill(row_statistics& to, const tensor_view& view) noexcept {
  to = {};
  if (!view.present()) return;
  const int heads = view.rank - 2;
  to.data = static_cast<float*>(view.data);
  to.batch = heads > 0 ? stride_of(view, 0) : 0;
  to.head = stride_of(view, heads);
  to.row = stride_of(view, heads + 1);
}

constexpr void fill(token_ids& to, const tensor_view& view) noexcept {
  to = {};
  if (!view.present()) return;
  to.data = static_cast<const std::int32_t*>(view.data);
  to.batch = stride_of(view, 0);
  to.row = stride_of(view, 1);
}

constexpr void fill(const std::int32_t*& to, const tensor_view& view) noexcept {
  to = view.present() ? static_cast<const std::int32_t*>(view.data) : nullptr;
}

/// Pointers and strides of a validated call.
constexpr void fill_tensors(const flash_attention_args& args,
                            attention_kernel_args& lowered) noexcept {
  lowered.q = args.q.data;
  lowered.k = args.k.data;
  lowered.v = args.v.data;
  lowered.out = args.out.data;
  fill(lowered.q_strides, args.q);
  fill(lowered.k_strides, args.k);
  fill(lowered.v_strides, args.v);
  fill(lowered.out_strides, args.out);
  fill(lowered.lse, args.lse);
  fill(lowered.row_max, args.row_max);
  fill(lowered.bias_pre, args.bias_pre);
  fill(lowered.bias_post, args.bias_post);
  fill(lowered.mask, args.mask);
  fill(lowered.q_segments, args.q_segment_ids);
  fill(lowered.kv_segments,
       args.kv_segment_ids.present() ? args.kv_segment_ids : args.q_segment_ids);
  const bool sinks = args.sinks.present();
  lowered.sinks = sinks ? static_cast<const float*>(args.sinks.data) : nullptr;
  lowered.sink_head_stride = sinks ? stride_of(args.sinks, 0) : 0;
  lowered.sink_stride = sinks ? stride_of(args.sinks, 1) : 0;
  lowered.sink_count = sinks ? static_cast<int>(args.sinks.extent[1]) : 0;
  fill(lowered.cu_seqlens_q, args.cu_seqlens_q);
  fill(lowered.cu_seqlens_k, args.cu_seqlens_k);
  fill(lowered.seqlens_q, args.seqlens_q);
  fill(lowered.seqlens_k, args.seqlens_k);
  const bool weights = args.weights.present();
  lowered.weights = weights ? args.weights.data : nullptr;
  lowered.weights_type = args.weights.type;
  lowered.weights_batch = weights ? stride_of(args.weights, 0) : 0;
  lowered.weights_head = weights ? stride_of(args.weights, 1) : 0;
  lowered.weights_row = weights ? stride_of(args.weights, 2) : 0;
}

}  // namespace checks

/// Validates the memory of tensors whose shapes have been checked, and fills pointers and strides.
/// `device` as in `lower`.
inline status lower_memory(const flash_attention_args& args, attention_kernel_args& lowered,
                           device_id* device = nullptr) {
  status failure;
  if (!checks::flash_memory::check(args, failure, device)) return failure;
  const bool on_host = device == nullptr || device->kind == device_kind::cpu;
  if (on_host && !checks::are_contents(args, lowered, failure)) return failure;
  checks::fill_tensors(args, lowered);
  return failure;
}

/// Validates a call completely and fills `lowered`, whose content is unspecified after a refusal.
/// Reads the tensors' descriptions and, in host memory, the values of cu_seqlens_* and seqlens_*.
/// All tensors lie in host memory; or, with `device`, on one device, which it becomes.
inline status lower(flash_op op, const flash_attention_args& args,
                    const flash_attention_options& options, attention_kernel_args& lowered,
                    device_id* device = nullptr) {
  status failure;
  lowered = {};
  if (!checks::are_options(op, options, failure) ||
      !checks::flash_shapes::check(op, args, options, lowered, failure)) {
    return failure;
  }
  checks::fill_options(options, lowered.head_dim, lowered);
  return lower_memory(args, lowered, device);
}

/// Validates a problem, and gives the arguments that a call with these shapes would have; pointers
/// of present tensors are not null but point to nothing, strides are 0.
inline status lower(const flash_problem& problem, attention_kernel_args& lowered) {
  flash_attention_args args{.q = checks::somewhere(problem.q),
                            .k = checks::somewhere(problem.k),
                            .v = checks::somewhere(problem.v),
                            .bias_pre = checks::somewhere(problem.bias_pre),
                            .bias_post = checks::somewhere(problem.bias_post),
                            .mask = checks::somewhere(problem.mask),
                            .q_segment_ids = checks::somewhere(problem.q_segment_ids),
                            .kv_segment_ids = checks::somewhere(problem.kv_segment_ids),
                            .sinks = checks::somewhere(problem.sinks),
                            .cu_seqlens_q = checks::somewhere(problem.cu_seqlens_q),
                            .cu_seqlens_k = checks::somewhere(problem.cu_seqlens_k),
                            .seqlens_q = checks::somewhere(problem.seqlens_q),
                            .seqlens_k = checks::somewhere(problem.seqlens_k),
                            .out = checks::somewhere(problem.q),
                            .weights = checks::somewhere(problem.weights)};
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
