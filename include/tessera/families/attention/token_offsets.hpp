// What signatures share whose tensors are packed by offsets of queries and of keys.
#pragma once

#include <cstddef>
#include <utility>

#include <tessera/spec/declaration.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_checks.hpp>

namespace tessera::attention_table {

/// Offsets of queries and those of keys belong together.
inline bool has_both_offsets(const bound_call& call, std::size_t of_q, std::size_t of_k,
                             status& failure) {
  if (call.has(of_q) == call.has(of_k)) return true;
  const auto forms = call.form().tensors;
  const auto [there, missing] = call.has(of_q) ? std::pair(of_q, of_k) : std::pair(of_k, of_q);
  return checks::refuse(failure, forms[missing].name, ": is absent, ", forms[there].name,
                        " is given; packed tensors need both");
}
/// Dense, or packed where there are offsets.
inline int layout_by_offsets(const bound_call& call, std::size_t of_q, std::size_t of_k) {
  return call.has(of_q) || call.has(of_k) ? 1 : 0;
}

}  // namespace tessera::attention_table
