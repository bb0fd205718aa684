// The quick check of a planned run: are these the planned tensors, laid out row-major, where the
// plan runs, apart from each other? Then everything else about them was checked with the plan.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/lower.hpp>
#include <tessera/families/attention/lower_memory.hpp>
#include <tessera/families/attention/problem.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::impl {

/// What every tensor of a run is expected to be. Immutable, so that any number of runs may ask.
class planned_memory {
 public:
  planned_memory() = default;

  /// `problem` is valid (see `lower`).
  planned_memory(const flash_problem& problem, device_id device) noexcept
      : device_(device),
        unit_(device.kind == device_kind::cuda && !problem.unaligned && whole_chunks(problem.q) &&
                      whole_chunks(problem.v)
                  ? aligned_rows
                  : 1) {
    using tensors = flash_attention_args;
    tensor_shape out = problem.q;
    const auto last = static_cast<std::size_t>(out.rank - 1);
    out.extent[last] = problem.v.extent[last];
    expect(&tensors::out, out, true);
    const auto& q = problem.q.extent;
    const tensor_shape lse = is_packed(problem) ? tensor_shape{dtype::f32, 2, {q[1], q[0]}}
                                                : tensor_shape{dtype::f32, 3, {q[0], q[2], q[1]}};
    expect(&tensors::lse, lse, false);
    if (!problem.options.normalize) expect(&tensors::row_max, lse, false);
    expect(&tensors::weights, problem.weights, true);
    expect(&tensors::q, problem.q, true, unit_);
    expect(&tensors::k, problem.k, true, unit_);
    expect(&tensors::v, problem.v, true, unit_);
    expect(&tensors::bias_pre, problem.bias_pre, true);
    expect(&tensors::bias_post, problem.bias_post, true);
    expect(&tensors::mask, problem.mask, true);
    expect(&tensors::q_segment_ids, problem.q_segment_ids, true);
    expect(&tensors::kv_segment_ids, problem.kv_segment_ids, true);
    expect(&tensors::sinks, problem.sinks, true);
    expect(&tensors::cu_seqlens_q, problem.cu_seqlens_q, true);
    expect(&tensors::cu_seqlens_k, problem.cu_seqlens_k, true);
    expect(&tensors::seqlens_q, problem.seqlens_q, true);
    expect(&tensors::seqlens_k, problem.seqlens_k, true);
    strides_ = {filled<row_strides>(problem.q), filled<row_strides>(problem.k),
                filled<row_strides>(problem.v), filled<row_strides>(out)};
    lse_ = filled<row_statistics>(lse);
  }

  device_id device() const noexcept { return device_; }
  /// True if rows of q, k and v start at multiples of 16 bytes.
  bool rows_are_aligned() const noexcept { return unit_ == aligned_rows; }

  /// True if the tensors need no closer look; `lowered` then has their pointers and strides. False
  /// says nothing about them.
  bool place(const flash_attention_args& args, attention_kernel_args& lowered) const noexcept {
    const std::uint32_t present = present_in(args, std::make_index_sequence<roles.size()>());
    if ((present & required_) != required_ || (present & ~known_) != 0) return false;
    struct span {
      std::uintptr_t begin, end;
    };
    std::array<span, roles.size()> spans;  // NOLINT: filled up to `outputs`
    std::size_t outputs = 0;
    for (std::size_t at = 0; at < form_count_; ++at) {
      const form& planned = forms_[at];
      if ((present >> planned.role & 1u) == 0) continue;
      const tensor_view& view = args.*roles[planned.role].member;
      const auto begin = reinterpret_cast<std::uintptr_t>(view.data);
      const std::uintptr_t end = begin + planned.bytes;
      if (!planned.describes(view, device_) || begin == 0 || (begin & planned.past) != 0 ||
          end < begin) {
        return false;
      }
      for (std::size_t output = 0; output < outputs; ++output) {
        if (spans[output].begin < end && begin < spans[output].end) return false;
      }
      if (planned.output) spans[outputs++] = {begin, end};
    }
    fill(args, present, lowered);
    return true;
  }

 private:
  static constexpr auto& roles = checks::flash_tensor_roles;
  static_assert(roles.size() <= 32);

  struct form {
    std::uint8_t role = 0;
    bool output = false;
    dtype type = dtype::none;
    std::int8_t rank = 0;
    std::uintptr_t past = 0;  ///< bits of an address that alignment forbids
    std::uintptr_t bytes = 0;
    std::array<std::int64_t, max_rank> extent{};
    std::array<std::int64_t, max_rank> stride{};

    bool describes(const tensor_view& view, device_id device) const noexcept {
      if (view.type != type || view.rank != rank || view.device != device ||
          (output && view.read_only)) {
        return false;
      }
      return differing(view, std::make_index_sequence<max_rank>()) == 0;
    }

    /// One branch per tensor instead of one per axis, and no loop. Axes beyond the rank may hold
    /// anything: tensors that have something there are looked at closely.
    template <std::size_t... Axes>
    std::int64_t differing(const tensor_view& view, std::index_sequence<Axes...>) const noexcept {
      return ((view.extent[Axes] ^ extent[Axes]) | ...) |
             ((view.stride[Axes] ^ stride[Axes]) | ...);
    }
  };

  static constexpr std::uint8_t aligned_rows = 16;

  /// Rows of other lengths cannot all be aligned, and no row of the table asks them to be.
  static bool whole_chunks(const tensor_shape& shape) noexcept {
    const std::int64_t columns = shape.extent[static_cast<std::size_t>(shape.rank - 1)];
    return columns * static_cast<std::int64_t>(size_of(shape.type)) % aligned_rows == 0;
  }

  template <std::size_t... Roles>
  static std::uint32_t present_in(const flash_attention_args& args,
                                  std::index_sequence<Roles...>) noexcept {
    return ((std::uint32_t{(args.*roles[Roles].member).present()} << Roles) | ...);
  }

  static constexpr std::size_t role_of(tensor_view flash_attention_args::*member) noexcept {
    std::size_t role = 0;
    while (roles[role].member != member) ++role;
    return role;
  }
  static constexpr std::uint32_t bit_of(tensor_view flash_attention_args::*member) noexcept {
    return std::uint32_t{1} << role_of(member);
  }

  /// Rows start at multiples of `unit` bytes. Outputs are expected first.
  void expect(tensor_view flash_attention_args::*member, const tensor_shape& shape, bool required,
              std::uint8_t unit = 1) noexcept {
    if (!shape.present()) return;
    if (required) required_ |= bit_of(member);
    form planned;
    planned.role = static_cast<std::uint8_t>(role_of(member));
    planned.output = roles[planned.role].output;
    planned.type = shape.type;
    planned.rank = shape.rank;
    std::uintptr_t bytes = size_of(shape.type);
    planned.past = std::max<std::uintptr_t>(unit, bytes) - 1;
    const auto last = static_cast<std::size_t>(shape.rank - 1);
    const std::uintptr_t row_bytes = bytes * static_cast<std::uintptr_t>(shape.extent[last]);
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(shape.rank); ++axis) {
      planned.extent[axis] = shape.extent[axis];
      if (__builtin_mul_overflow(bytes, static_cast<std::uintptr_t>(shape.extent[axis]), &bytes)) {
        return;  // not known: never admitted
      }
    }
    if (row_bytes % unit != 0) return;
    planned.bytes = bytes;
    planned.stride = contiguous_strides(planned.extent, shape.rank);
    known_ |= bit_of(member);
    forms_[form_count_++] = planned;
  }

  /// What `fill` makes of a row-major tensor.
  template <class Part>
  static Part filled(const tensor_shape& shape) noexcept {
    tensor_view tensor;
    tensor.type = shape.type;
    tensor.rank = shape.rank;
    tensor.extent = shape.extent;
    tensor.stride = contiguous_strides(shape.extent, shape.rank);
    Part part;
    checks::fill(part, tensor);
    return part;
  }

  /// Most calls have no more than rows, lengths and lse, whose strides are known.
  void fill(const flash_attention_args& args, std::uint32_t present,
            attention_kernel_args& lowered) const noexcept {
    using tensors = flash_attention_args;
    constexpr std::uint32_t plain =
        bit_of(&tensors::q) | bit_of(&tensors::k) | bit_of(&tensors::v) | bit_of(&tensors::out) |
        bit_of(&tensors::lse) | bit_of(&tensors::cu_seqlens_q) | bit_of(&tensors::cu_seqlens_k) |
        bit_of(&tensors::seqlens_q) | bit_of(&tensors::seqlens_k);
    if ((present & ~plain) != 0) return checks::fill_tensors(args, lowered);
    lowered.q = args.q.data;
    lowered.k = args.k.data;
    lowered.v = args.v.data;
    lowered.out = args.out.data;
    lowered.q_strides = strides_[0];
    lowered.k_strides = strides_[1];
    lowered.v_strides = strides_[2];
    lowered.out_strides = strides_[3];
    if (args.lse.present()) {
      lowered.lse = lse_;
      lowered.lse.data = static_cast<float*>(args.lse.data);
    }
    lowered.cu_seqlens_q = static_cast<const std::int32_t*>(args.cu_seqlens_q.data);
    lowered.cu_seqlens_k = static_cast<const std::int32_t*>(args.cu_seqlens_k.data);
    lowered.seqlens_q = static_cast<const std::int32_t*>(args.seqlens_q.data);
    lowered.seqlens_k = static_cast<const std::int32_t*>(args.seqlens_k.data);
  }

  std::array<form, roles.size()> forms_{};  ///< outputs first
  std::size_t form_count_ = 0;
  std::uint32_t required_ = 0;
  std::uint32_t known_ = 0;  ///< with a form; others are looked at closely
  std::array<row_strides, 4> strides_{};
  row_statistics lse_{};
  device_id device_{};
  std::uint8_t unit_ = 1;
};

}  // namespace tessera::impl
