// Linear attention with decay, recurrent, gla, lightning_attn and rwkv6 with their gradients: one
// call, or plan once and run.
#pragma once

#include <tessera/api/chunked_scan.hpp>
#include <tessera/api/lightning_decays.hpp>
