// The tensors of one call on a cache of keys and values in pages, under the names that tools and
// files use.
//
// | tensor | shape | dtype |
// |---|---|---|
// | k_new, v_new | [R,Hkv,D], [R,Hkv,Dv]: new tokens, sequence by sequence | f32, f16, bf16 |
// | k_pages, v_pages | axes by pool_layout: [P,Hkv,T,D], ... | also f8_e4m3, f8_e5m2, i8 |
// | kv_pages | or one pool, PTCD: [P,T,2 Hkv,D]; PTCLD: [P,T,ceil(2 Hkv / L),L,W] | likewise |
// | block_table | [N,M]: page m holds keys [m T, m T + T) of the sequence | i32 |
// | seqlens_k | [N]: keys of the sequence, the new ones included | i32 |
// | cu_seqlens_q | [N+1]: rows of the new tokens of the sequences; absent: one each | i32 |
// | num_seqs | [1]: sequences in use, the first ones; absent: all | i32 |
// | k_scales, v_scales | [Hkv]: what keys and values of a head are divided by | f32 |
// | k_token_scales, v_token_scales | [P,T,Hkv], (PT)HD: [P T,Hkv]: written, pools of 8 bits | f32 |
// | source_pages, target_pages | kv_cache_copy: [A] pages | i32 |
//
// Channel 2h of a pool of both holds K of head h, 2h + 1 its V. In PTCLD channel c is lane c % L of
// group c / L, L = 4 / bytes of an element, and W is D rounded up to 128; channels and columns that
// hold nothing become 0 in every slot that is written.
//
// The last axis of every tensor but scales of tokens has stride 1; every other stride is free.
#pragma once

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed.
struct kv_cache_args {
  tensor_view k_new{};
  tensor_view v_new{};
  tensor_view k_pages{};   ///< read only where pages are copied; written
  tensor_view v_pages{};   ///< likewise
  tensor_view kv_pages{};  ///< instead of both
  tensor_view block_table{};
  tensor_view seqlens_k{};
  tensor_view cu_seqlens_q{};
  tensor_view num_seqs{};
  tensor_view k_scales{};
  tensor_view v_scales{};
  tensor_view source_pages{};
  tensor_view target_pages{};
  tensor_view k_token_scales{};  ///< optional; scales of new tokens go to their slots
  tensor_view v_token_scales{};
};

}  // namespace tessera
