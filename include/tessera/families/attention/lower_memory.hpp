// Whether the memory behind the tensors of an attention call may be read and written, and whether
// the lengths stored in it lie inside the tensors. Shapes have been checked.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/spec/tensor_checks.hpp>
#include <tessera/spec/tensor_memory.hpp>

namespace tessera::checks {

using flash_tensor_role = tensor_role<flash_attention_args>;

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

using flash_memory = call_memory<flash_attention_args, flash_tensor_roles>;

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

/// The lengths stored in cu_seqlens_* or seqlens_* of host memory: they decide which memory a
/// kernel touches.
inline bool are_contents(const flash_attention_args& args, const attention_kernel_args& sizes,
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
