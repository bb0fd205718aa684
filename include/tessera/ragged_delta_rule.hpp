// ragged_gated_delta_rule and ragged_gated_delta_rule_v2 with their gradients: one call, or plan
// once and run.
#pragma once

#include <tessera/api/ragged_delta_rule.hpp>
