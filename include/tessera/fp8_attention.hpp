// fp8_attention: one call, or plan once and run many times.
#pragma once

#include <tessera/api/fp8_attention.hpp>
