// Every way in which tests make a legal mean pooling call illegal, with words that its refusal must
// contain.
#pragma once

#include <cstdint>
#include <ostream>
#include <string_view>
#include <vector>

#include "pooling_data.hpp"

namespace tessera::support {

/// A call that may be changed. Not movable: views may point into it.
struct pooling_call {
  explicit pooling_call(const pooling_data& data)
      : op(data.op()), args(data.args()), options(data.options()) {}
  pooling_call(const pooling_call&) = delete;
  pooling_call& operator=(const pooling_call&) = delete;

  tensor_view& tokens() { return is_backward(op) ? args.d_x : args.x; }
  tensor_view& means() { return is_backward(op) ? args.d_out : args.out; }
  tensor_view& output() { return is_backward(op) ? args.d_x : args.out; }
  tensor_view& input() { return is_backward(op) ? args.d_out : args.x; }

  mean_pooling_op op;
  mean_pooling_args args;
  mean_pooling_options options;
  std::vector<std::int32_t> offsets;
};

struct pooling_mutation {
  std::string_view name;
  std::vector<std::string_view> words;
  /// Makes the call illegal; false if the mutation does not fit the call (which is unchanged then).
  bool (*apply)(pooling_call&);
};
inline void PrintTo(const pooling_mutation& one, std::ostream* stream) {
  *stream << one.name;
}

namespace pooling_changes {

inline bool has_elements(const tensor_view& view) {
  return view.present() && view.elements() > 0;
}
inline tensor_view other_type(tensor_view view) {
  view.type = view.type == dtype::f32 ? dtype::bf16 : dtype::f32;
  return view;
}
/// The offsets in memory of the call, to be changed; null if there are none.
inline std::int32_t* own_offsets(pooling_call& call) {
  if (!call.args.cu_seqlens.present()) return nullptr;
  call.offsets.clear();
  for (const double value : reference::to_doubles(call.args.cu_seqlens)) {
    call.offsets.push_back(static_cast<std::int32_t>(value));
  }
  call.args.cu_seqlens.data = call.offsets.data();
  return call.offsets.data();
}

inline std::vector<pooling_mutation> tensor_shape_mutations() {
  return {
      {"tokens_absent", {"is absent"}, [](pooling_call& c) { return c.tokens() = {}, true; }},
      {"means_absent", {"is absent"}, [](pooling_call& c) { return c.means() = {}, true; }},
      {"output_of_the_other_direction",
       {"is given", "does not write it"},
       [](pooling_call& c) {
         return (is_backward(c.op) ? c.args.out : c.args.d_x) = c.means(), true;
       }},
      {"tokens_of_integers",
       {"dtype is i32", "f32, f16 or bf16"},
       [](pooling_call& c) { return c.tokens().type = dtype::i32, true; }},
      {"means_of_another_type",
       {"dtype is"},
       [](pooling_call& c) { return c.means() = other_type(c.means()), true; }},
      {"tokens_of_another_rank",
       {"rank is 5", " tensors have "},
       [](pooling_call& c) { return c.tokens().rank = 5, true; }},
      {"means_of_another_rank",
       {"rank is 1", " tensors have "},
       [](pooling_call& c) { return c.means().rank = 1, true; }},
      {"means_have_another_column",
       {"columns is"},
       [](pooling_call& c) {
         ++c.means().extent[static_cast<std::size_t>(c.means().rank - 1)];
         return true;
       }},
      {"means_have_another_row",
       {" is ", " has "},
       [](pooling_call& c) {
         if (c.args.cu_seqlens.present() && has_chunks(c.op)) return false;
         return ++c.means().extent[has_chunks(c.op) ? 1 : 0], true;
       }},
      {"negative_extent",
       {"must be at least 0"},
       [](pooling_call& c) { return c.tokens().extent[0] = -1, true; }},
      {"extents_overflow",
       {"more than 2^63"},
       [](pooling_call& c) {
         c.tokens().extent[0] = c.tokens().extent[1] = std::int64_t{1} << 40;
         return true;
       }},
  };
}

inline std::vector<pooling_mutation> option_and_mask_mutations() {
  return {
      {"chunk_size_zero",
       {"chunk_size: is 0"},
       [](pooling_call& c) { return c.options.chunk_size = 0, true; }},
      {"chunk_size_without_chunks",
       {"chunk_size: is 5", "has no such option"},
       [](pooling_call& c) { return !has_chunks(c.op) && (c.options.chunk_size = 5, true); }},
      {"mask_of_chunks",
       {"mask: is given"},
       [](pooling_call& c) {
         if (!has_chunks(c.op)) return false;
         return c.args.mask = c.means(), true;
       }},
      {"mask_of_packed",
       {"mask: is given with cu_seqlens"},
       [](pooling_call& c) {
         if (has_chunks(c.op) || !c.args.cu_seqlens.present()) return false;
         return c.args.mask = c.means(), true;
       }},
      {"mask_of_integers",
       {"mask: dtype is i32"},
       [](pooling_call& c) {
         return c.args.mask.present() && (c.args.mask.type = dtype::i32, true);
       }},
      {"mask_too_long",
       {"mask: length is"},
       [](pooling_call& c) { return c.args.mask.present() && (++c.args.mask.extent[1], true); }},
  };
}

inline std::vector<pooling_mutation> offset_mutations() {
  return {
      {"offsets_of_floats",
       {"cu_seqlens: dtype is f32", "i32"},
       [](pooling_call& c) {
         return c.args.cu_seqlens.present() && (c.args.cu_seqlens.type = dtype::f32, true);
       }},
      {"offsets_without_an_entry",
       {"cu_seqlens: length is 0"},
       [](pooling_call& c) {
         return c.args.cu_seqlens.present() && (c.args.cu_seqlens.extent[0] = 0, true);
       }},
      {"offsets_start_late",
       {"cu_seqlens: entry 0 is 1"},
       [](pooling_call& c) {
         std::int32_t* const offsets = own_offsets(c);
         return offsets != nullptr && (offsets[0] = 1, true);
       }},
      {"offsets_decrease",
       {"cu_seqlens", "never decrease"},
       [](pooling_call& c) {
         std::int32_t* const offsets = own_offsets(c);
         return offsets != nullptr && c.offsets.size() > 1 && (offsets[1] = -1, true);
       }},
      {"offsets_beyond_the_tokens",
       {"cu_seqlens: the last entry is"},
       [](pooling_call& c) {
         std::int32_t* const offsets = own_offsets(c);
         if (offsets == nullptr || c.offsets.size() < 2) return false;
         return c.offsets.back() = INT32_MAX, true;
       }},
      {"another_number_of_chunks",
       {"number of chunks is"},
       [](pooling_call& c) {
         if (!has_chunks(c.op) || !c.args.cu_seqlens.present()) return false;
         return ++c.means().extent[1], true;
       }},
      {"packed_batch",
       {"batch is 2"},
       [](pooling_call& c) {
         if (!has_chunks(c.op) || !c.args.cu_seqlens.present()) return false;
         return c.tokens().extent[0] = 2, true;
       }},
  };
}

inline std::vector<pooling_mutation> memory_mutations() {
  return {
      {"input_without_memory",
       {"data is null"},
       [](pooling_call& c) { return has_elements(c.input()) && (c.input().data = nullptr, true); }},
      {"output_misaligned",
       {"bytes past a multiple of"},
       [](pooling_call& c) {
         if (!has_elements(c.output())) return false;
         c.output().data = static_cast<std::byte*>(c.output().data) + 1;
         return true;
       }},
      {"output_read_only",
       {"is read-only"},
       [](pooling_call& c) { return has_elements(c.output()) && (c.output().read_only = true); }},
      {"output_on_a_device",
       {"device is ", "cuda:0", "cpu:0"},
       [](pooling_call& c) { return c.output().device.kind = device_kind::cuda, true; }},
      {"columns_apart",
       {"stride of the last axis is 2"},
       [](pooling_call& c) {
         tensor_view& view = c.input();
         const auto last = static_cast<std::size_t>(view.rank - 1);
         return has_elements(view) && view.extent[last] > 1 && (view.stride[last] = 2, true);
       }},
      {"output_folded",
       {"must not share memory"},
       [](pooling_call& c) {
         tensor_view& view = c.output();
         return has_elements(view) && view.extent[0] > 1 && (view.stride[0] = 0, true);
       }},
      {"output_is_the_input",
       {"shares memory with"},
       [](pooling_call& c) {
         if (!has_elements(c.output()) || !has_elements(c.input())) return false;
         return c.output().data = c.input().data, true;
       }},
      {"x_of_another_shape",
       {"x: "},
       [](pooling_call& c) {
         if (!is_backward(c.op) || !c.args.x.present()) return false;
         return ++c.args.x.extent[0], true;
       }},
  };
}

}  // namespace pooling_changes

inline const std::vector<pooling_mutation>& pooling_mutations() {
  using namespace pooling_changes;
  static const std::vector<pooling_mutation> all = [] {
    std::vector<pooling_mutation> joined;
    for (const auto& group : {tensor_shape_mutations(), option_and_mask_mutations(),
                              offset_mutations(), memory_mutations()}) {
      joined.insert(joined.end(), group.begin(), group.end());
    }
    return joined;
  }();
  return all;
}

}  // namespace tessera::support
