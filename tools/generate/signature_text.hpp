// The words for what operations take: shapes, element types, limits and defaults, from their
// declarations. The C header and the reference of operations are written with them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/spec/declaration.hpp>

#include "table.hpp"

namespace tessera::generate {

/// Operations of a family with the same tensors and options, called after the first.
struct operation_group {
  const signature* form = nullptr;
  std::vector<const operation*> operations;
  std::string_view name() const noexcept { return operations.front()->name; }
};
std::vector<operation_group> groups_of(const family& family);

/// "B batch; Sq length of q": the dims that some tensor has.
std::string axes_text(const signature& form);
/// "dense [B,Sq,Hq,D], packed [Sq,Hq,D]"; the shape alone where it is the same in every layout.
std::string shapes_text(const signature& form, std::size_t tensor);
/// "f32, f16, bf16" or "type of q".
std::string types_text(const signature& form, std::size_t tensor);

/// Of an option that is a number: "at least 1", "finite as a float".
std::string limit_text(const option_form& option);
/// "false", "0.5", "bottom_right"; empty where there is no default.
std::string default_value(const signature& form, const option_form& option);
/// Of an option without a default: "required", "optional, else 1/sqrt(D)".
std::string absence_text(const option_form& option);

}  // namespace tessera::generate
