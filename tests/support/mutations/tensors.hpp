// Illegal biases, masks, sinks, segments and optional outputs.
#pragma once

#include <cstdint>
#include <vector>

#include "mutation.hpp"

namespace tessera::support {

/// lse and row_max.
inline std::vector<flash_mutation> statistic_mutations() {
  using namespace mutations;
  using call = flash_call;
  return {
      {"lse in f16",
       {"lse:", "f16"},
       [](call& c) { return if_present(c.args.lse, [](tensor_view& v) { v.type = dtype::f16; }); }},
      {"lse with other rows",
       {"lse:"},
       [](call& c) {
         return if_present(
             c.args.lse, [](tensor_view& v) { ++v.extent[static_cast<std::size_t>(v.rank - 1)]; });
       }},
      {"lse of rank 1",
       {"lse:", "rank"},
       [](call& c) { return if_present(c.args.lse, [](tensor_view& v) { v.rank = 1; }); }},
      {"lse over v",
       {"memory", "lse", "v"},
       [](call& c) {
         if (!has_elements(c.args.lse) || !has_elements(c.args.v)) return false;
         const auto address = reinterpret_cast<std::uintptr_t>(c.args.v.data);
         if (address % 4 != 0) return false;
         c.args.lse.data = c.args.v.data;
         return true;
       }},
      {"row_max without unnormalized output",
       {"row_max:", "normalize"},
       [](call& c) {
         if (!c.options.normalize || !c.args.lse.present()) return false;
         c.args.row_max = c.args.lse;
         return true;
       }},
  };
}

/// Biases and masks.
inline std::vector<flash_mutation> score_tensor_mutations() {
  using namespace mutations;
  using call = flash_call;
  return {
      {"bias in i32",
       {"bias_pre:", "i32"},
       [](call& c) {
         return if_present(c.args.bias_pre, [](tensor_view& v) { v.type = dtype::i32; });
       }},
      {"bias with other heads",
       {"bias_post:", "heads"},
       [](call& c) {
         if (!c.args.bias_post.present()) return false;
         c.args.bias_post.extent[1] = c.args.q.extent[head_axis(c)] + 1;
         return true;
       }},
      {"bias of rank 3",
       {"bias_pre:", "rank", "3"},
       [](call& c) { return if_present(c.args.bias_pre, [](tensor_view& v) { v.rank = 3; }); }},
      {"bias misaligned",
       {"bias_pre:", "multiple"},
       [](call& c) { return if_elements(c.args.bias_pre, misalign); }},
      {"mask in f32",
       {"mask:", "f32"},
       [](call& c) {
         return if_present(c.args.mask, [](tensor_view& v) { v.type = dtype::f32; });
       }},
      {"mask with other keys",
       {"mask:", "keys"},
       [](call& c) {
         if (!c.args.mask.present() || c.args.cu_seqlens_q.present()) return false;
         c.args.mask.extent[3] = c.args.k.extent[1] + 2;
         return true;
       }},
      {"mask null",
       {"mask:", "null"},
       [](call& c) { return if_elements(c.args.mask, [](tensor_view& v) { v.data = nullptr; }); }},
  };
}

/// Sinks and segment ids.
inline std::vector<flash_mutation> sink_and_segment_mutations() {
  using namespace mutations;
  using call = flash_call;
  return {
      {"sinks in f16",
       {"sinks:", "f16"},
       [](call& c) {
         return if_present(c.args.sinks, [](tensor_view& v) { v.type = dtype::f16; });
       }},
      {"sinks of rank 1",
       {"sinks:", "rank", "1"},
       [](call& c) { return if_present(c.args.sinks, [](tensor_view& v) { v.rank = 1; }); }},
      {"sinks with other heads",
       {"sinks:", "heads"},
       [](call& c) {
         if (!c.args.sinks.present()) return false;
         c.args.sinks.extent[0] = c.args.q.extent[head_axis(c)] + 1;
         return true;
       }},
      {"segment ids in i64",
       {"q_segment_ids:", "i64"},
       [](call& c) {
         return if_present(c.args.q_segment_ids, [](tensor_view& v) { v.type = dtype::i64; });
       }},
      {"segment ids of another length",
       {"q_segment_ids:"},
       [](call& c) {
         return if_present(c.args.q_segment_ids, [](tensor_view& v) { ++v.extent[1]; });
       }},
      {"key segment ids of another length",
       {"kv_segment_ids:"},
       [](call& c) {
         return if_present(c.args.kv_segment_ids, [](tensor_view& v) { ++v.extent[1]; });
       }},
      {"key segment ids alone",
       {"kv_segment_ids:", "q_segment_ids"},
       [](call& c) {
         if (!c.args.kv_segment_ids.present()) return false;
         c.args.q_segment_ids = {};
         return true;
       }},
      {"query segment ids for keys of another length",
       {"kv_segment_ids:"},
       [](call& c) {
         if (!c.args.q_segment_ids.present() || c.args.q.extent[1] == c.args.k.extent[1]) {
           return false;
         }
         c.args.kv_segment_ids = {};
         return true;
       }},
  };
}

/// Weights and dropout masks.
inline std::vector<flash_mutation> score_output_mutations() {
  using namespace mutations;
  using call = flash_call;
  return {
      {"weights in another dtype",
       {"weights:", "dtype"},
       [](call& c) {
         return if_present(c.args.weights, [](tensor_view& v) { v.type = dtype::i32; });
       }},
      {"weights of flash_attention",
       {"weights:", "flash_attention"},
       [](call& c) {
         if (!c.args.weights.present()) return false;
         c.op = flash_op::flash_attention;
         return true;
       }},
      {"weights unnormalized",
       {"weights:", "normalize"},
       [](call& c) {
         if (!c.args.weights.present()) return false;
         c.options.normalize = false;
         return true;
       }},
      {"weights over out",
       {"memory", "out", "weights"},
       [](call& c) {
         if (!has_elements(c.args.weights) || !has_elements(c.args.out) ||
             reinterpret_cast<std::uintptr_t>(c.args.out.data) % 4 != 0) {
           return false;
         }
         c.args.weights.data = c.args.out.data;
         return true;
       }},
      {"dropout mask without dropout",
       {"dropout_mask:", "0"},
       [](call& c) {
         if (!c.args.dropout_mask.present()) return false;
         c.options.dropout_probability = 0.0;
         return true;
       }},
      {"dropout mask in f32",
       {"dropout_mask:", "f32"},
       [](call& c) {
         return if_present(c.args.dropout_mask, [](tensor_view& v) { v.type = dtype::f32; });
       }},
  };
}

}  // namespace tessera::support
