// state_space_v1, state_space_v2 and rwkv4: one call, or plan once and run.
#pragma once

#include <tessera/api/selective_scan.hpp>
