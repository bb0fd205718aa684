// What a choice among sparse attention rows may depend on, read off a call once.
#pragma once

#include <array>
#include <cstddef>
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
  std::array<std::uint8_t, 3> unused{};
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

/// One entry; packed, a sequence of 512 tokens: neither the others nor lengths that depend on them
/// count.
constexpr sparse_attention_demand without_batch(sparse_attention_demand demand) noexcept {
  demand.batch = 1;
  if (demand.packed) demand.q_len = demand.kv_len = 512;
  return demand;
}

namespace sparse_attention_fields {

template <auto Member>
std::int64_t value(const demand& from) noexcept {
  return static_cast<std::int64_t>(from.as<sparse_attention_demand>().*Member);
}

inline constexpr std::array table{
    demand_field{"pattern", key_part::identity, &value<&sparse_attention_demand::pattern>,
                 sparse_pattern_names},
    demand_field{"pass", key_part::identity, &value<&sparse_attention_demand::pass>,
                 sparse_pass_names},
    demand_field{"type", key_part::identity, &value<&sparse_attention_demand::type>, dtype_names},
    demand_field{"packed", key_part::identity, &value<&sparse_attention_demand::packed>,
                 words_of_flags},
    demand_field{.name = "aligned16",
                 .part = key_part::identity,
                 .value = &value<&sparse_attention_demand::aligned16>,
                 .words = words_of_flags,
                 .usual = 1},
    demand_field{"head_dim", key_part::size, &value<&sparse_attention_demand::head_dim>},
    demand_field{"v_head_dim", key_part::size, &value<&sparse_attention_demand::v_head_dim>},
    demand_field{"batch", key_part::size, &value<&sparse_attention_demand::batch>},
    demand_field{"q_heads", key_part::size, &value<&sparse_attention_demand::q_heads>},
    demand_field{"kv_heads", key_part::size, &value<&sparse_attention_demand::kv_heads>},
    demand_field{"q_len", key_part::size, &value<&sparse_attention_demand::q_len>},
    demand_field{"kv_len", key_part::size, &value<&sparse_attention_demand::kv_len>},
};

}  // namespace sparse_attention_fields
}  // namespace tessera
