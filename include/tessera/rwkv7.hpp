// rwkv7 and rwkv7_mul with their gradients: one call, or plan once and run.
#pragma once

#include <tessera/api/rwkv7.hpp>
