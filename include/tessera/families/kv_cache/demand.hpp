// What a choice among rows of caches may depend on, read off a call once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/families/kv_cache/config.hpp>
#include <tessera/families/kv_cache/problem.hpp>
#include <tessera/spec/demand.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// Everything that the choice of a row may depend on. Eligibility and cost see nothing else.
struct kv_cache_demand {
  kv_cache_pass pass = kv_cache_pass::append;
  dtype new_type = dtype::none;  ///< copies: none
  dtype pool_type = dtype::none;
  std::uint8_t unused = 0;
  std::uint32_t unused_too = 0;
  std::int64_t moves = 0;     ///< new tokens, or pages
  std::int64_t elements = 0;  ///< of one, keys and values
  friend constexpr bool operator==(const kv_cache_demand&, const kv_cache_demand&) = default;
};

/// Elements of a page of a pool.
constexpr std::int64_t page_elements(const tensor_view& pool,
                                     const kv_cache_options& options) noexcept {
  if (!pool.present()) return 0;
  std::int64_t count = 1;
  for (int axis = 0; axis < pool.rank; ++axis) {
    const bool pages = axis == (options.pool_layout == cache_layout::HPTD ? 1 : 0);
    if (!pages) count *= pool.extent[static_cast<std::size_t>(axis)];
  }
  return options.pool_layout == cache_layout::PT_HD ? count * options.page_size : count;
}

constexpr kv_cache_demand demand_of(kv_cache_op op, const kv_cache_args& args,
                                    const kv_cache_options& options, bool /*unaligned*/) noexcept {
  const tensor_view& pool = args.kv_pages.present() ? args.kv_pages : args.k_pages;
  kv_cache_demand wanted{.pass = pass_of(op), .pool_type = pool.type};
  if (op == kv_cache_op::kv_cache_copy) {
    wanted.moves = args.source_pages.extent[0];
    wanted.elements = page_elements(pool, options) + page_elements(args.v_pages, options);
  } else {
    wanted.new_type = args.k_new.type;
    wanted.moves = args.k_new.extent[0];
    wanted.elements = args.k_new.extent[1] * (args.k_new.extent[2] + args.v_new.extent[2]);
  }
  return wanted;
}

/// Tokens and pages move alone.
constexpr kv_cache_demand without_batch(kv_cache_demand demand) noexcept {
  demand.moves = 1;
  return demand;
}

namespace kv_cache_fields {

inline constexpr std::array table{
    fields::exact<&kv_cache_demand::pass>("pass", kv_cache_pass_names),
    fields::exact<&kv_cache_demand::new_type>("new_type"),
    fields::exact<&kv_cache_demand::pool_type>("pool_type"),
    fields::bucket<&kv_cache_demand::moves>("moves"),
    fields::bucket<&kv_cache_demand::elements>("elements"),
};

}  // namespace kv_cache_fields
}  // namespace tessera
