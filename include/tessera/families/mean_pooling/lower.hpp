// From what a caller says (views, options) to what a kernel receives (pointers, strides, sizes).
// Everything is validated here and nowhere else. A refusal is one sentence that names the tensor or
// option, the fact and both numbers; nothing has been written then. A valid call allocates nothing.
//
// What is refused beyond the table in args.hpp:
// - a mask of chunks or of packed tensors; chunk_size where there are no chunks, or below 1.
// - offsets that do not start at 0, decrease, or end beyond the tensor. They may end before it:
//   the tokens behind belong to no sequence.
// - tensors on different devices. Of tensors in a GPU's memory only the descriptions are looked
//   at: offsets there are clipped to the tokens by the kernels. Packed chunks may then have more
//   means than there are chunks, which become 0, or fewer: the chunks behind are left out, and
//   their tokens have gradient 0.
// - an output that is read-only, whose elements share memory, or that shares a byte with any other
//   tensor. Outputs of the other direction.
// Zero entries, tokens, sequences, heads and columns are legal.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <tessera/families/mean_pooling/args.hpp>
#include <tessera/families/mean_pooling/kernel_args.hpp>
#include <tessera/families/mean_pooling/lower_shapes.hpp>
#include <tessera/families/mean_pooling/options.hpp>
#include <tessera/families/mean_pooling/problem.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_memory.hpp>

namespace tessera {

/// The shapes and options of a call, without its pointers. Copies; validates nothing.
constexpr mean_pooling_problem problem_of(
    const mean_pooling_args& args, const mean_pooling_options& options = {},
    mean_pooling_op op = mean_pooling_op::mean_pooling) noexcept {
  return {.op = op,
          .x = is_backward(op) ? args.d_x.shape() : args.x.shape(),
          .mask = args.mask.shape(),
          .cu_seqlens = args.cu_seqlens.shape(),
          .options = options};
}

namespace checks {

using mean_pooling_role = tensor_role<mean_pooling_args>;

/// Every tensor there is.
inline constexpr std::array mean_pooling_roles{
    mean_pooling_role{"x", &mean_pooling_args::x, false, true},
    mean_pooling_role{"out", &mean_pooling_args::out, true, true},
    mean_pooling_role{"d_out", &mean_pooling_args::d_out, false, true},
    mean_pooling_role{"d_x", &mean_pooling_args::d_x, true, true},
    mean_pooling_role{"mask", &mean_pooling_args::mask},
    mean_pooling_role{"cu_seqlens", &mean_pooling_args::cu_seqlens, false, true},
};

using mean_pooling_memory = call_memory<mean_pooling_args, mean_pooling_roles>;

/// The offsets lie inside the tokens, and packed chunks have as many means as they need.
inline bool are_contents(mean_pooling_op op, const mean_pooling_args& args,
                         const mean_pooling_kernel_args& sizes, status& failure) {
  if (!args.cu_seqlens.present()) return true;
  std::int64_t longest = 0;
  const bool backward = is_backward(op);
  if (!are_offsets("cu_seqlens", args.cu_seqlens, backward ? "d_x" : "x", sizes.tokens, longest,
                   failure)) {
    return false;
  }
  if (sizes.chunk == 0) return true;
  const auto* const offset = static_cast<const std::int32_t*>(args.cu_seqlens.data);
  std::int64_t chunks = 0;
  for (std::int64_t n = 0; n < sizes.sequences; ++n) {
    const std::int64_t length = std::int64_t{offset[n + 1]} - offset[n];
    chunks += length / sizes.chunk + (length % sizes.chunk != 0 ? 1 : 0);
  }
  const tensor_view& means = backward ? args.d_out : args.out;
  return means.extent[1] == chunks ||
         refuse(failure, backward ? "d_out" : "out", ": number of chunks is ", means.extent[1],
                ", the sequences of cu_seqlens have ", chunks, " chunks of ", sizes.chunk);
}

/// Strides of tokens or means: an axis that is not there has stride 0.
inline void fill(pooling_strides& to, const tensor_view& view, mean_pooling_op op, bool packed,
                 bool means) noexcept {
  const bool chunks = has_chunks(op);
  to = {};
  if (chunks) {
    to = {stride_of(view, 0), stride_of(view, 1), stride_of(view, 2)};
  } else if (packed) {
    to.row = stride_of(view, 0);
  } else {
    to.entry = stride_of(view, 0);
    if (!means) to.row = stride_of(view, 1);
  }
}

/// Pointers and strides of a validated call.
inline void fill_tensors(mean_pooling_op op, const mean_pooling_args& args,
                         mean_pooling_kernel_args& lowered) noexcept {
  const bool backward = is_backward(op);
  const bool packed = args.cu_seqlens.present();
  const tensor_view& tokens = backward ? args.d_x : args.x;
  const tensor_view& means = backward ? args.d_out : args.out;
  lowered.from = backward ? means.data : tokens.data;
  lowered.to = backward ? tokens.data : means.data;
  fill(lowered.token_strides, tokens, op, packed, false);
  fill(lowered.mean_strides, means, op, packed, true);
  // Heads that lie side by side are columns of one wide head.
  const bool wide = lowered.heads == 1 || (lowered.token_strides.head == lowered.columns &&
                                           lowered.mean_strides.head == lowered.columns);
  if (wide) {
    lowered.columns *= lowered.heads;
    lowered.heads = 1;
  }
  const bool masked = args.mask.present();
  lowered.mask = masked ? args.mask.data : nullptr;
  lowered.mask_type = args.mask.type;
  lowered.mask_entry = masked ? stride_of(args.mask, 0) : 0;
  lowered.mask_token = masked ? stride_of(args.mask, 1) : 0;
  lowered.means = has_chunks(op) ? means.extent[1] : packed ? means.extent[0] : 1;
  lowered.cu_seqlens = packed ? static_cast<const std::int32_t*>(args.cu_seqlens.data) : nullptr;
}

}  // namespace checks

/// Validates a call completely and fills `lowered`, whose content is unspecified after a refusal.
/// Reads the tensors' descriptions and, in host memory, the values of cu_seqlens, nothing else. All
/// tensors lie in host memory; or, with `device`, on one device, which it becomes.
inline status lower(mean_pooling_op op, const mean_pooling_args& args,
                    const mean_pooling_options& options, mean_pooling_kernel_args& lowered,
                    device_id* device = nullptr) {
  status failure;
  lowered = {};
  if (!checks::mean_pooling_shapes::check(op, args, options, lowered, failure) ||
      !checks::mean_pooling_memory::check(args, failure, device)) {
    return failure;
  }
  const bool on_host = device == nullptr || device->kind == device_kind::cpu;
  if (on_host && !checks::are_contents(op, args, lowered, failure)) return failure;
  checks::fill_tensors(op, args, lowered);
  return failure;
}

/// Validates a problem, and gives the arguments that a call with these shapes, row-major, would
/// have; pointers of present tensors are not null but point to nothing.
inline status lower(const mean_pooling_problem& problem, mean_pooling_kernel_args& lowered) {
  const bool chunks = has_chunks(problem.op);
  const bool packed = is_packed(problem);
  tensor_shape shape = problem.x;  // of the means
  const std::int64_t chunk = problem.options.chunk_size;
  if (chunks && chunk >= 1) {
    shape.extent[1] = packed ? 1 : shape.extent[1] / chunk + (shape.extent[1] % chunk != 0 ? 1 : 0);
  } else if (packed) {
    shape.extent[0] = std::max<std::int64_t>(problem.cu_seqlens.extent[0], 1) - 1;
  } else {
    shape.rank = 2;
    shape.extent = {problem.x.extent[0], problem.x.extent[2]};
  }
  mean_pooling_args args{.mask = checks::somewhere(problem.mask),
                         .cu_seqlens = checks::somewhere(problem.cu_seqlens)};
  tensor_view& tokens = is_backward(problem.op) ? args.d_x : args.x;
  tensor_view& means = is_backward(problem.op) ? args.d_out : args.out;
  tokens = checks::somewhere(problem.x);
  means = checks::somewhere(shape);
  status failure;
  lowered = {};
  if (!checks::mean_pooling_shapes::check(problem.op, args, problem.options, lowered, failure)) {
    return failure;
  }
  tokens.stride = contiguous_strides(tokens.extent, tokens.rank);
  means.stride = contiguous_strides(means.extent, means.rank);
  checks::fill_tensors(problem.op, args, lowered);
  return failure;
}

}  // namespace tessera
