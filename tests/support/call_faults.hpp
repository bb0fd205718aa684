// Wrong numbers in the tensors of a call that decide what is read, and how many entries break their
// rules.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/spec/declaration.hpp>

#include "call_data.hpp"
#include "random.hpp"

namespace tessera::support {

/// Tensors of an operation hold numbers that are looked at.
bool has_content_rules(const operation& op);

/// Changes one entry of some of them: to the border of what is legal, far out, or to what another
/// entry holds.
void change_contents(const call_data& data, random_source& random);

/// Entries that break a rule, by the place of their tensor among the args.
std::vector<std::uint64_t> faults_of(const bound_call& call);

}  // namespace tessera::support
