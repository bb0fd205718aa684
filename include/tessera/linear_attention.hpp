// Linear attention with decay: recurrent, gla, lightning_attn, rwkv6; one call, or plan once and
// run.
#pragma once

#include <tessera/api/chunked_scan.hpp>
