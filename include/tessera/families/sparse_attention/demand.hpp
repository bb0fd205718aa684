// What a choice among sparse attention rows may depend on, read off a call once.
#pragma once

#include <array>
#include <cstdint>

#include <tessera/families/sparse_attention/config.hpp>
#include <tessera/families/sparse_attention/problem.hpp>
#include <tessera/spec/demand.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// Everything that the choice of a row may depend on. Eligibility and cost see nothing else.
struct sparse_attention_demand {
  sparse_pattern pattern = sparse_pattern::blocksparse;
  sparse_pass pass = sparse_pass::forward;
  dtype type = dtype::none;  ///< of the queries
  bool packed = false;
  bool aligned16 = true;  ///< rows of q, k and v start and end at multiples of 16 bytes
  bool attends = true;    ///< false: to nothing, blocks are selected and no more
  std::array<std::uint8_t, 2> unused{};
  std::int64_t batch = 0;
  std::int64_t q_heads = 0, kv_heads = 0;
  std::int64_t q_len = 0, kv_len = 0;
  std::int64_t head_dim = 0, v_head_dim = 0;
  friend constexpr bool operator==(const sparse_attention_demand&,
                                   const sparse_attention_demand&) = default;
};

template <class Args>
constexpr sparse_attention_demand blocksparse_demand(const Args& args, sparse_pass pass,
                                                     bool unaligned) noexcept {
  const auto& q = args.q.extent;
  const auto& k = args.k.extent;
  return {.pattern = sparse_pattern::blocksparse,
          .pass = pass,
          .type = args.q.type,
          .aligned16 = !unaligned,
          .batch = q[0],
          .q_heads = q[1],
          .kv_heads = k[1],
          .q_len = q[2],
          .kv_len = k[2],
          .head_dim = q[3],
          .v_head_dim = args.v.extent[3]};
}
constexpr sparse_attention_demand demand_of(blocksparse_op, const blocksparse_attention_args& args,
                                            const blocksparse_attention_options&,
                                            bool unaligned) noexcept {
  return blocksparse_demand(args, sparse_pass::forward, unaligned);
}
constexpr sparse_attention_demand demand_of(blocksparse_backward_op,
                                            const blocksparse_attention_backward_args& args,
                                            const blocksparse_attention_options&,
                                            bool unaligned) noexcept {
  return blocksparse_demand(args, sparse_pass::backward, unaligned);
}

template <class Args>
constexpr sparse_attention_demand native_sparse_demand(const Args& args, sparse_pass pass,
                                                       bool unaligned) noexcept {
  const auto& q = args.q.extent;
  return {.pattern = sparse_pattern::native_sparse,
          .pass = pass,
          .type = args.q.type,
          .packed = args.cu_seqlens.present(),
          .aligned16 = !unaligned,
          .batch = q[0],
          .q_heads = q[2],
          .kv_heads = args.k.extent[2],
          .q_len = q[1],
          .kv_len = q[1],
          .head_dim = q[3],
          .v_head_dim = args.v.extent[3]};
}
constexpr sparse_attention_demand demand_of(native_sparse_op,
                                            const native_sparse_attention_args& args,
                                            const native_sparse_attention_options&,
                                            bool unaligned) noexcept {
  return native_sparse_demand(args, sparse_pass::forward, unaligned);
}
constexpr sparse_attention_demand demand_of(native_sparse_backward_op,
                                            const native_sparse_attention_backward_args& args,
                                            const native_sparse_attention_options&,
                                            bool unaligned) noexcept {
  return native_sparse_demand(args, sparse_pass::backward, unaligned);
}

constexpr sparse_attention_demand demand_of(block_selection_op, const block_selection_args& args,
                                            const block_selection_options&,
                                            bool unaligned) noexcept {
  const auto& q = args.q.extent;
  return {.pattern = sparse_pattern::native_sparse,
          .pass = sparse_pass::forward,
          .type = args.q.type,
          .packed = args.cu_seqlens.present(),
          .aligned16 = !unaligned,
          .attends = false,
          .batch = q[0],
          .q_heads = q[2],
          .kv_heads = args.k.extent[2],
          .q_len = q[1],
          .kv_len = q[1],
          .head_dim = q[3],
          .v_head_dim = q[3]};
}

/// One entry; packed, a sequence of 512 tokens: neither the others nor lengths that depend on them
/// count.
constexpr sparse_attention_demand without_batch(sparse_attention_demand demand) noexcept {
  demand.batch = 1;
  if (demand.packed) demand.q_len = demand.kv_len = 512;
  return demand;
}

namespace sparse_attention_fields {

inline constexpr std::array table{
    fields::exact<&sparse_attention_demand::pattern>("pattern", sparse_pattern_names),
    fields::exact<&sparse_attention_demand::pass>("pass"),
    fields::exact<&sparse_attention_demand::type>("type"),
    fields::exact<&sparse_attention_demand::packed>("packed"),
    fields::exact_but<&sparse_attention_demand::aligned16>(1, "aligned16"),
    fields::exact_but<&sparse_attention_demand::attends>(1, "attends"),
    fields::bucket<&sparse_attention_demand::head_dim>("head_dim"),
    fields::bucket<&sparse_attention_demand::v_head_dim>("v_head_dim"),
    fields::bucket<&sparse_attention_demand::batch>("batch"),
    fields::bucket<&sparse_attention_demand::q_heads>("q_heads"),
    fields::bucket<&sparse_attention_demand::kv_heads>("kv_heads"),
    fields::bucket<&sparse_attention_demand::q_len>("q_len"),
    fields::bucket<&sparse_attention_demand::kv_len>("kv_len"),
};

}  // namespace sparse_attention_fields
}  // namespace tessera
