// What operation_reference asks about rows, where several families answer alike.
#pragma once

#include <cstdint>
#include <string_view>

#include <tessera/families/attention/fits.hpp>
#include <tessera/families/delta_rule/config.hpp>

namespace tessera::reference {

/// operation_reference::row_extent of rows with a head dim, and maybe another one of values.
template <class Config>
std::int64_t head_dim_of_row(const void* config, std::string_view dim) {
  const auto& row = *static_cast<const Config*>(config);
  if (dim == "D") return row.head_dim;
  if (dim != "Dv") return 0;
  if constexpr (requires { row.v_head_dim; }) {
    if (row.v_head_dim != 0) return row.v_head_dim;
  }
  return row.head_dim;
}

/// The same of rows over pages: those of Hopper copy whole boxes of tokens.
inline std::int64_t extent_of_paged_row(const void* config, std::string_view dim) {
  const auto& row = *static_cast<const attention_config*>(config);
  if (dim == "T" && row.target == backend::cuda_sm90) return box_of_page;
  return head_dim_of_row<attention_config>(config, dim);
}

/// The same of the delta rule: rows of chunks leave keys of few channels to others, and narrower
/// ones than theirs to narrower rows.
inline std::int64_t key_dim_of_chunks(const void* config, std::string_view dim) {
  const auto& row = *static_cast<const delta_rule_config*>(config);
  return dim == "K" && goes_by_chunks(row) ? row.key_dim : 0;
}

/// operation_reference::rounded_numbers. Rows of chunks multiply on the matrix unit, whose operands
/// are of the tensors' type; those that go token by token are held to the floor of the type.
template <class Config, int Numbers>
int rounded_in_chunks(const void* config) {
  return goes_by_chunks(*static_cast<const Config*>(config)) ? Numbers : 1;
}

/// Of the delta rule: q and k with the decay in them, their score, the inverse of a chunk, and the
/// values that it corrects.
inline constexpr auto rounded_by_delta_rule = &rounded_in_chunks<delta_rule_config, 5>;

}  // namespace tessera::reference
