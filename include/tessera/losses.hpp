// fused_cross_entropy, fused_linear_cross_entropy, fused_kl_divergence: one call, or plan once and
// run.
#pragma once

#include <tessera/api/losses.hpp>
