// Whether the memory behind the tensors of an attention call may be read and written, and whether
// the lengths stored in it lie inside the tensors. Shapes have been checked.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include <tessera/spec/flash_attention/args.hpp>
#include <tessera/spec/flash_attention/kernel_args.hpp>
#include <tessera/spec/tensor_checks.hpp>
#include <tessera/spec/tensor_overlap.hpp>

namespace tessera::checks {

/// How a call uses one of its tensors.
struct flash_tensor_role {
  std::string_view name;
  tensor_view flash_attention_args::*member;
  bool output = false;
  bool contiguous_rows = false;  ///< stride 1 on the last axis
};

/// Every tensor there is.
inline constexpr std::array flash_tensor_roles{
    flash_tensor_role{"q", &flash_attention_args::q, false, true},
    flash_tensor_role{"k", &flash_attention_args::k, false, true},
    flash_tensor_role{"v", &flash_attention_args::v, false, true},
    flash_tensor_role{"out", &flash_attention_args::out, true, true},
    flash_tensor_role{"lse", &flash_attention_args::lse, true},
    flash_tensor_role{"bias_pre", &flash_attention_args::bias_pre},
    flash_tensor_role{"bias_post", &flash_attention_args::bias_post},
    flash_tensor_role{"mask", &flash_attention_args::mask},
    flash_tensor_role{"q_segment_ids", &flash_attention_args::q_segment_ids},
    flash_tensor_role{"kv_segment_ids", &flash_attention_args::kv_segment_ids},
    flash_tensor_role{"sinks", &flash_attention_args::sinks},
    flash_tensor_role{"cu_seqlens_q", &flash_attention_args::cu_seqlens_q, false, true},
    flash_tensor_role{"cu_seqlens_k", &flash_attention_args::cu_seqlens_k, false, true},
    flash_tensor_role{"seqlens_q", &flash_attention_args::seqlens_q, false, true},
    flash_tensor_role{"seqlens_k", &flash_attention_args::seqlens_k, false, true},
    flash_tensor_role{"row_max", &flash_attention_args::row_max, true},
    flash_tensor_role{"weights", &flash_attention_args::weights, true, true},
    flash_tensor_role{"dropout_mask", &flash_attention_args::dropout_mask, true},
};

/// The tensors of one call that have elements, with the bytes they lie in.
class flash_memory {
 public:
  static bool check(const flash_attention_args& args, status& failure) {
    return check(args, failure, std::make_index_sequence<flash_tensor_roles.size()>{});
  }

 private:
  struct placed {
    const flash_tensor_role* role;
    const tensor_view* view;
    std::uintptr_t begin, end;  ///< first byte, one past the last
  };

  /// Written out per role, so that absent tensors cost a comparison each.
  template <std::size_t... Roles>
  static bool check(const flash_attention_args& args, status& failure,
                    std::index_sequence<Roles...>) {
    flash_memory memory;
    return (memory.add_present<Roles>(args, failure) && ...) && memory.outputs_are_apart(failure);
  }

  template <std::size_t Role>
  bool add_present(const flash_attention_args& args, status& failure) {
    constexpr const flash_tensor_role& role = flash_tensor_roles[Role];
    const tensor_view& view = args.*role.member;
    return !view.present() || add(role, view, failure);
  }

  flash_memory() noexcept {}  // leaves the entries beyond count_ alone

  [[gnu::noinline]] bool add(const flash_tensor_role& role, const tensor_view& view,
                             status& failure) {
    if (view.device != device_id{}) {
      return refuse(failure, role.name, ": device is ", view.device, ", must be ", device_id{});
    }
    byte_range range{};
    if (!has_memory(role.name, view, range, failure)) return false;
    if (role.contiguous_rows && !has_contiguous_rows(role.name, view, failure)) return false;
    if (range.empty()) return true;
    if (role.output && !has_distinct_elements(role.name, view, failure)) return false;
    placed_[count_++] = {&role, &view, range.begin, range.end};
    return true;
  }

  bool outputs_are_apart(status& failure) const {
    for (std::size_t i = 0; i < count_; ++i) {
      const placed& output = placed_[i];
      if (!output.role->output) continue;
      for (std::size_t j = 0; j < count_; ++j) {
        const placed& other = placed_[j];
        if (j == i || output.begin >= other.end || other.begin >= output.end) continue;
        if (!share_memory(*output.view, *other.view)) continue;
        const std::uintptr_t begin = std::max(output.begin, other.begin);
        const std::uintptr_t end = std::min(output.end, other.end);
        return refuse(failure, output.role->name, ": shares memory with ", other.role->name, ", ",
                      end - begin, " of its ", output.end - output.begin,
                      " bytes lie between the first and last of it");
      }
    }
    return true;
  }

  std::size_t count_ = 0;
  std::array<placed, flash_tensor_roles.size()> placed_;
};

/// Offsets start at 0, never decrease and end inside the tensor. Gives the longest sequence.
inline bool are_offsets(std::string_view name, const tensor_view& offsets, std::string_view owner,
                        std::int64_t rows, std::int64_t& longest, status& failure) {
  const auto* const value = static_cast<const std::int32_t*>(offsets.data);
  const std::int64_t sequences = offsets.extent[0] - 1;
  longest = 0;
  if (value[0] != 0) return refuse(failure, name, ": entry 0 is ", value[0], ", must be 0");
  for (std::int64_t n = 0; n < sequences; ++n) {
    const std::int64_t length = std::int64_t{value[n + 1]} - value[n];
    if (length < 0) {
      return refuse(failure, name, ": entry ", n + 1, " is ", value[n + 1], ", entry ", n, " has ",
                    value[n], "; offsets never decrease");
    }
    longest = std::max(longest, length);
  }
  if (value[sequences] > rows) {
    return refuse(failure, name, ": the last entry is ", value[sequences], ", ", owner, " has ",
                  rows, " rows");
  }
  return true;
}

/// Every length is 0 to the rows of the tensor.
inline bool are_lengths(std::string_view name, const tensor_view& lengths, std::string_view owner,
                        std::int64_t rows, status& failure) {
  const auto* const value = static_cast<const std::int32_t*>(lengths.data);
  for (std::int64_t b = 0; b < lengths.extent[0]; ++b) {
    if (value[b] < 0 || value[b] > rows) {
      return refuse(failure, name, ": entry ", b, " is ", value[b], ", must be 0 to the ", rows,
                    " rows of ", owner);
    }
  }
  return true;
}

/// A packed bias or mask has a row per query and a key per column of the longest sequence.
inline bool spans_longest(std::string_view name, const tensor_view& view, std::int64_t longest_q,
                          std::int64_t longest_k, status& failure) {
  if (!view.present()) return true;
  if (view.extent[2] != 1 && view.extent[2] < longest_q) {
    return refuse(failure, name, ": rows is ", view.extent[2],
                  ", the longest sequence of cu_seqlens_q has ", longest_q, " (1 broadcasts)");
  }
  if (view.extent[3] != 1 && view.extent[3] < longest_k) {
    return refuse(failure, name, ": keys is ", view.extent[3],
                  ", the longest sequence of cu_seqlens_k has ", longest_k, " (1 broadcasts)");
  }
  return true;
}

/// The lengths stored in cu_seqlens_* or seqlens_*: they decide which memory a kernel touches.
inline bool are_contents(const flash_attention_args& args, const flash_kernel_args& sizes,
                         status& failure) {
  if (args.cu_seqlens_q.present()) {
    std::int64_t longest_q = 0;
    std::int64_t longest_k = 0;
    return are_offsets("cu_seqlens_q", args.cu_seqlens_q, "q", sizes.q_len, longest_q, failure) &&
           are_offsets("cu_seqlens_k", args.cu_seqlens_k, "k", sizes.kv_len, longest_k, failure) &&
           spans_longest("bias_pre", args.bias_pre, longest_q, longest_k, failure) &&
           spans_longest("bias_post", args.bias_post, longest_q, longest_k, failure) &&
           spans_longest("mask", args.mask, longest_q, longest_k, failure);
  }
  return (!args.seqlens_q.present() ||
          are_lengths("seqlens_q", args.seqlens_q, "q", sizes.q_len, failure)) &&
         (!args.seqlens_k.present() ||
          are_lengths("seqlens_k", args.seqlens_k, "k", sizes.kv_len, failure));
}

}  // namespace tessera::checks
