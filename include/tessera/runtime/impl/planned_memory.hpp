// The quick check of a planned run: are these the planned tensors, laid out row-major, apart from
// each other? Then everything else about them was checked with the plan.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/spec/flash_attention/args.hpp>
#include <tessera/spec/flash_attention/lower_memory.hpp>
#include <tessera/spec/flash_attention/problem.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::impl {

/// What every tensor of a run is expected to be. Immutable, so that any number of runs may ask.
class planned_memory {
 public:
  planned_memory() = default;

  /// `problem` is valid (see `lower`).
  explicit planned_memory(const flash_problem& problem) noexcept {
    expect(&flash_attention_args::q, problem.q, true);
    expect(&flash_attention_args::k, problem.k, true);
    expect(&flash_attention_args::v, problem.v, true);
    expect(&flash_attention_args::bias_pre, problem.bias_pre, true);
    expect(&flash_attention_args::bias_post, problem.bias_post, true);
    expect(&flash_attention_args::mask, problem.mask, true);
    expect(&flash_attention_args::q_segment_ids, problem.q_segment_ids, true);
    expect(&flash_attention_args::kv_segment_ids, problem.kv_segment_ids, true);
    expect(&flash_attention_args::sinks, problem.sinks, true);
    expect(&flash_attention_args::cu_seqlens_q, problem.cu_seqlens_q, true);
    expect(&flash_attention_args::cu_seqlens_k, problem.cu_seqlens_k, true);
    expect(&flash_attention_args::seqlens_q, problem.seqlens_q, true);
    expect(&flash_attention_args::seqlens_k, problem.seqlens_k, true);
    expect(&flash_attention_args::weights, problem.weights, true);
    tensor_shape out = problem.q;
    const auto last = static_cast<std::size_t>(out.rank - 1);
    out.extent[last] = problem.v.extent[last];
    expect(&flash_attention_args::out, out, true);
    const auto& q = problem.q.extent;
    const tensor_shape lse = is_packed(problem) ? tensor_shape{dtype::f32, 2, {q[1], q[0]}}
                                                : tensor_shape{dtype::f32, 3, {q[0], q[2], q[1]}};
    expect(&flash_attention_args::lse, lse, false);
    if (!problem.options.normalize) expect(&flash_attention_args::row_max, lse, false);
  }

  /// True if the tensors need no closer look. False says nothing about them.
  bool admits(const flash_attention_args& args) const noexcept {
    struct span {
      std::uintptr_t begin, end;
      bool output;
    };
    std::array<span, checks::flash_tensor_roles.size()> spans;  // NOLINT: filled up to `count`
    std::size_t count = 0;
    for (std::size_t role = 0; role < forms_.size(); ++role) {
      const form& planned = forms_[role];
      const tensor_view& view = args.*checks::flash_tensor_roles[role].member;
      if (!view.present() && !planned.required) continue;
      if (!planned.describes(view)) return false;
      const auto begin = reinterpret_cast<std::uintptr_t>(view.data);
      const bool output = checks::flash_tensor_roles[role].output;
      if (begin == 0 || begin % planned.alignment != 0 || begin + planned.bytes < begin ||
          (output && view.read_only)) {
        return false;
      }
      spans[count++] = {begin, begin + planned.bytes, output};
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (!spans[i].output) continue;
      for (std::size_t j = 0; j < count; ++j) {
        if (j != i && spans[i].begin < spans[j].end && spans[j].begin < spans[i].end) return false;
      }
    }
    return true;
  }

 private:
  struct form {
    dtype type = dtype::none;  ///< none: such a tensor is looked at closely
    std::int8_t rank = 0;
    bool required = false;
    std::uint8_t alignment = 1;
    std::uintptr_t bytes = 0;
    std::array<std::int64_t, max_rank> extent{};
    std::array<std::int64_t, max_rank> stride{};

    bool describes(const tensor_view& view) const noexcept {
      return view.type == type && type != dtype::none && view.rank == rank &&
             view.device == device_id{} &&
             (differing(view.extent, extent) | differing(view.stride, stride)) == 0;
    }

    /// Nonzero where two arrays differ. One branch per tensor instead of one per axis.
    static std::int64_t differing(const std::array<std::int64_t, max_rank>& a,
                                  const std::array<std::int64_t, max_rank>& b) noexcept {
      std::int64_t bits = 0;
      for (std::size_t axis = 0; axis < max_rank; ++axis) bits |= a[axis] ^ b[axis];
      return bits;
    }
  };

  void expect(tensor_view flash_attention_args::*member, const tensor_shape& shape,
              bool required) noexcept {
    for (std::size_t role = 0; role < forms_.size(); ++role) {
      if (checks::flash_tensor_roles[role].member != member || !shape.present()) continue;
      form& planned = forms_[role];
      planned.required = required;
      planned.rank = shape.rank;
      std::uintptr_t bytes = size_of(shape.type);
      planned.alignment = static_cast<std::uint8_t>(bytes);
      for (std::size_t axis = 0; axis < static_cast<std::size_t>(shape.rank); ++axis) {
        planned.extent[axis] = shape.extent[axis];
        if (__builtin_mul_overflow(bytes, static_cast<std::uintptr_t>(shape.extent[axis]),
                                   &bytes)) {
          return;  // without a type: never admitted
        }
      }
      planned.bytes = bytes;
      planned.stride = contiguous_strides(planned.extent, shape.rank);
      planned.type = shape.type;
    }
  }

  std::array<form, checks::flash_tensor_roles.size()> forms_{};
};

}  // namespace tessera::impl
