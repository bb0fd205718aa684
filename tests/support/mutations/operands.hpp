// Illegal q, k, v and out.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "mutation.hpp"

namespace tessera::support {

/// q, k, v and out: presence and dtypes.
inline std::vector<flash_mutation> presence_and_dtype_mutations() {
  using namespace mutations;
  using call = flash_call;
  return {
      {"q absent",
       {"q:", "absent"},
       [](call& c) {
         c.args.q = {};
         return true;
       }},
      {"k absent",
       {"k:", "absent"},
       [](call& c) {
         c.args.k = {};
         return true;
       }},
      {"v absent",
       {"v:", "absent"},
       [](call& c) {
         c.args.v = {};
         return true;
       }},
      {"out absent",
       {"out:", "absent"},
       [](call& c) {
         c.args.out = {};
         return true;
       }},
      {"q of a dtype that is no operand's",
       {"q:", "i32"},
       [](call& c) {
         c.args.q.type = dtype::i32;
         return true;
       }},
      {"q in double",
       {"q:", "f64"},
       [](call& c) {
         c.args.q.type = dtype::f64;
         return true;
       }},
      {"k of another dtype",
       {"k:", "dtype"},
       [](call& c) {
         c.args.k.type = c.args.k.type == dtype::bf16 ? dtype::f16 : dtype::bf16;
         return true;
       }},
      {"v of another dtype",
       {"v:", "dtype"},
       [](call& c) {
         c.args.v.type = dtype::u8;
         return true;
       }},
      {"out of another dtype",
       {"out:", "dtype"},
       [](call& c) {
         c.args.out.type = c.args.out.type == dtype::f32 ? dtype::f16 : dtype::f32;
         return true;
       }},
  };
}

/// Ranks.
inline std::vector<flash_mutation> rank_mutations() {
  using namespace mutations;
  using call = flash_call;
  return {
      {"q of rank 2",
       {"q:", "rank", "2"},
       [](call& c) {
         c.args.q.rank = 2;
         return true;
       }},
      {"k of rank 5",
       {"k:", "rank", "5"},
       [](call& c) {
         c.args.k.rank = 5;
         return true;
       }},
      {"v of rank 0",
       {"v:", "rank", "0"},
       [](call& c) {
         c.args.v.rank = 0;
         return true;
       }},
      {"q of rank -1",
       {"q:", "rank", "-1"},
       [](call& c) {
         c.args.q.rank = -1;
         return true;
       }},
  };
}

/// Head dims and heads.
inline std::vector<flash_mutation> head_mutations() {
  using namespace mutations;
  using call = flash_call;
  return {
      {"head dims of q and k differ",
       {"k:", "head_dim"},
       [](call& c) {
         ++c.args.k.extent[head_axis(c) + 1];
         return true;
       }},
      {"head dim 0",
       {"head_dim", "0"},
       [](call& c) {
         c.args.q.extent[head_axis(c) + 1] = c.args.k.extent[head_axis(c) + 1] = 0;
         return true;
       }},
      {"head dim 257",
       {"head_dim", "257", "256"},
       [](call& c) {
         c.args.q.extent[head_axis(c) + 1] = c.args.k.extent[head_axis(c) + 1] = 257;
         return true;
       }},
      {"v head dim 300",
       {"v:", "head_dim", "300", "256"},
       [](call& c) {
         c.args.v.extent[head_axis(c) + 1] = c.args.out.extent[head_axis(c) + 1] = 300;
         return true;
       }},
      {"q heads no multiple of kv heads",
       {"q:", "heads", "4", "5", "k"},
       [](call& c) {
         c.args.k.extent[head_axis(c)] = c.args.v.extent[head_axis(c)] =
             c.args.q.extent[head_axis(c)] + 1;
         return true;
       }},
      {"no heads",
       {"heads", "0"},
       [](call& c) {
         c.args.k.extent[head_axis(c)] = c.args.v.extent[head_axis(c)] = 0;
         return true;
       }},
  };
}

/// Shapes that contradict each other.
inline std::vector<flash_mutation> operand_shape_mutations() {
  using namespace mutations;
  using call = flash_call;
  return {
      {"v with other heads than k",
       {"v:", "heads"},
       [](call& c) {
         ++c.args.v.extent[head_axis(c)];
         return true;
       }},
      {"v with other rows than k",
       {"v:"},
       [](call& c) {
         ++c.args.v.extent[head_axis(c) - 1];
         return true;
       }},
      {"out with other rows than q",
       {"out:"},
       [](call& c) {
         ++c.args.out.extent[head_axis(c) - 1];
         return true;
       }},
      {"out with other heads than q",
       {"out:", "heads"},
       [](call& c) {
         ++c.args.out.extent[head_axis(c)];
         return true;
       }},
      {"out with another head dim than v",
       {"out:", "head_dim"},
       [](call& c) {
         ++c.args.out.extent[head_axis(c) + 1];
         return true;
       }},
      {"batches of q and k differ",
       {"k:", "batch"},
       [](call& c) {
         if (c.args.cu_seqlens_q.present()) return false;
         ++c.args.k.extent[0];
         return true;
       }},
  };
}

/// Extents and strides that no memory has.
inline std::vector<flash_mutation> operand_extent_mutations() {
  using namespace mutations;
  using call = flash_call;
  return {
      {"a negative extent",
       {"k:", "-3"},
       [](call& c) {
         c.args.k.extent[head_axis(c) - 1] = -3;
         return true;
       }},
      {"extents whose product overflows",
       {"q:"},
       [](call& c) {
         c.args.q.extent[head_axis(c) - 1] = c.args.out.extent[head_axis(c) - 1] =
             std::numeric_limits<std::int64_t>::max() / 2;
         c.args.q.extent[head_axis(c)] = c.args.out.extent[head_axis(c)] = 64;
         return true;
       }},
      {"strides that leave the address space",
       {"k:"},
       [](call& c) {
         const std::size_t rows = head_axis(c) - 1;
         if (!has_elements(c.args.k) || c.args.k.extent[rows] < 2) return false;
         c.args.k.stride[rows] = std::numeric_limits<std::int64_t>::max() / 3;
         return true;
       }},
      {"q with strided rows",
       {"q:", "stride", "2"},
       [](call& c) {
         const std::size_t last = head_axis(c) + 1;
         if (!has_elements(c.args.q) || c.args.q.extent[last] < 2) return false;
         c.args.q.stride[last] = 2;
         return true;
       }},
      {"out with strided rows",
       {"out:", "stride", "2"},
       [](call& c) {
         const std::size_t last = head_axis(c) + 1;
         if (!has_elements(c.args.out) || c.args.out.extent[last] < 2) return false;
         c.args.out.stride[last] = 2;
         return true;
       }},
  };
}

/// Pointers and devices.
inline std::vector<flash_mutation> operand_pointer_mutations() {
  using namespace mutations;
  using call = flash_call;
  return {
      {"q null",
       {"q:", "null"},
       [](call& c) { return if_elements(c.args.q, [](tensor_view& v) { v.data = nullptr; }); }},
      {"out null",
       {"out:", "null"},
       [](call& c) { return if_elements(c.args.out, [](tensor_view& v) { v.data = nullptr; }); }},
      {"k misaligned", {"k:", "multiple"}, [](call& c) { return if_elements(c.args.k, misalign); }},
      {"out misaligned",
       {"out:", "multiple"},
       [](call& c) { return if_elements(c.args.out, misalign); }},
      {"q on another device than the rest",
       {"k: device is", "q has cuda:1"},
       [](call& c) {
         c.args.q.device = {device_kind::cuda, 1};
         return true;
       }},
      {"out on another device",
       {"out:", "cpu:3"},
       [](call& c) {
         c.args.out.device = {device_kind::cpu, 3};
         return true;
       }},
      {"out read-only",
       {"out:", "read-only"},
       [](call& c) { return if_elements(c.args.out, [](tensor_view& v) { v.read_only = true; }); }},
  };
}

/// Outputs that share memory.
inline std::vector<flash_mutation> operand_overlap_mutations() {
  using namespace mutations;
  using call = flash_call;
  return {
      {"out whose rows share memory",
       {"out:", "memory"},
       [](call& c) {
         const std::size_t rows = head_axis(c) - 1;
         if (!has_elements(c.args.out) || c.args.out.extent[rows] < 2) return false;
         c.args.out.stride[rows] = 0;
         return true;
       }},
      {"out over q",
       {"memory", "q"},
       [](call& c) {
         if (!has_elements(c.args.out) || !has_elements(c.args.q)) return false;
         c.args.out.data = c.args.q.data;
         return true;
       }},
      {"out over the end of k",
       {"memory", "k"},
       [](call& c) {
         if (!has_elements(c.args.out) || !has_elements(c.args.k)) return false;
         std::int64_t last = 0;
         reference::for_each_element(c.args.k, [&](std::int64_t, std::int64_t at) { last = at; });
         const auto size = static_cast<std::int64_t>(size_of(c.args.k.type));
         c.args.out.data = static_cast<std::byte*>(c.args.k.data) + last * size;
         return true;
       }},
  };
}

}  // namespace tessera::support
