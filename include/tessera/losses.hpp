// fused_cross_entropy: one call, or plan once and run.
#pragma once

#include <tessera/api/losses.hpp>
