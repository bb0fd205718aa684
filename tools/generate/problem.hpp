// Problems as the generator sees them: what a choice may depend on, and the key of a lookup table.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <tessera/spec/declaration.hpp>
#include <tessera/spec/demand.hpp>

#include "table.hpp"

namespace tessera::generate {

/// The demand of a problem text; refuses what the operation would refuse.
outcome<demand> demand_of_problem(std::span<const operation> operations, std::string_view line);

/// Exact part of the key of a demand with these fields.
std::string identity_of(std::span<const demand_field> fields, const demand& asked);

}  // namespace tessera::generate
