// gated_delta_rule and kernel_delta_attention with their gradients: one call, or plan once and run.
#pragma once

#include <tessera/api/delta_rule.hpp>
