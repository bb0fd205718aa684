// Illegal cu_seqlens and seqlens.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "mutation.hpp"

namespace tessera::support {

/// cu_seqlens_q and cu_seqlens_k.
inline std::vector<flash_mutation> packed_length_mutations() {
  using namespace mutations;
  using call = flash_call;
  return {
      {"cu_seqlens_k absent",
       {"cu_seqlens_k:", "absent"},
       [](call& c) { return if_present(c.args.cu_seqlens_k, [](tensor_view& v) { v = {}; }); }},
      {"cu_seqlens_q in i64",
       {"cu_seqlens_q:", "i64"},
       [](call& c) {
         return if_present(c.args.cu_seqlens_q, [](tensor_view& v) { v.type = dtype::i64; });
       }},
      {"cu_seqlens_q empty",
       {"cu_seqlens_q:", "0"},
       [](call& c) {
         return if_present(c.args.cu_seqlens_q, [](tensor_view& v) { v.extent[0] = 0; });
       }},
      {"cu_seqlens of different lengths",
       {"cu_seqlens_k:"},
       [](call& c) {
         if (!c.args.cu_seqlens_k.present() || c.args.cu_seqlens_k.extent[0] < 2) return false;
         --c.args.cu_seqlens_k.extent[0];
         return true;
       }},
      {"cu_seqlens_q does not start at 0",
       {"cu_seqlens_q:", "entry 0", "1"},
       [](call& c) {
         return if_present(c.args.cu_seqlens_q, [&](tensor_view& v) { c.own(v)[0] = 1; });
       }},
      {"cu_seqlens_k decreases",
       {"cu_seqlens_k:", "-5"},
       [](call& c) {
         if (!c.args.cu_seqlens_k.present() || c.args.cu_seqlens_k.extent[0] < 2) return false;
         c.own(c.args.cu_seqlens_k)[1] = -5;
         return true;
       }},
      {"cu_seqlens_k jumps back",
       {"cu_seqlens_k:", "2147483647"},
       [](call& c) {
         if (!c.args.cu_seqlens_k.present() || c.args.cu_seqlens_k.extent[0] < 3) return false;
         c.own(c.args.cu_seqlens_k)[1] = std::numeric_limits<std::int32_t>::max();
         return true;
       }},
      {"cu_seqlens_q past the tensor",
       {"cu_seqlens_q:"},
       [](call& c) {
         if (!c.args.cu_seqlens_q.present() || c.args.cu_seqlens_q.extent[0] < 2) return false;
         const auto last = static_cast<std::size_t>(c.args.cu_seqlens_q.extent[0] - 1);
         c.own(c.args.cu_seqlens_q)[last] = static_cast<std::int32_t>(c.args.q.extent[0] + 1);
         return true;
       }},
  };
}

/// seqlens_q and seqlens_k.
inline std::vector<flash_mutation> padded_length_mutations() {
  using namespace mutations;
  using call = flash_call;
  return {
      {"seqlens_q with packed tensors",
       {"seqlens_q:", "cu_seqlens_q"},
       [](call& c) {
         if (!c.args.cu_seqlens_q.present()) return false;
         c.args.seqlens_q = c.args.cu_seqlens_q;
         return true;
       }},
      {"seqlens_q negative",
       {"seqlens_q:", "-1"},
       [](call& c) {
         return if_elements(c.args.seqlens_q, [&](tensor_view& v) { c.own(v)[0] = -1; });
       }},
      {"seqlens_k past the tensor",
       {"seqlens_k:"},
       [](call& c) {
         return if_elements(c.args.seqlens_k, [&](tensor_view& v) {
           c.own(v)[0] = static_cast<std::int32_t>(c.args.k.extent[1] + 1);
         });
       }},
      {"seqlens_k of another batch",
       {"seqlens_k:"},
       [](call& c) { return if_present(c.args.seqlens_k, [](tensor_view& v) { ++v.extent[0]; }); }},
      {"seqlens_q in f32",
       {"seqlens_q:", "f32"},
       [](call& c) {
         return if_present(c.args.seqlens_q, [](tensor_view& v) { v.type = dtype::f32; });
       }},
      {"seqlens_q null",
       {"seqlens_q:", "null"},
       [](call& c) {
         return if_elements(c.args.seqlens_q, [](tensor_view& v) { v.data = nullptr; });
       }},
  };
}

}  // namespace tessera::support
