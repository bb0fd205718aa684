// ragged_decode_attention: one call, or plan once and run many times.
#pragma once

#include <tessera/api/ragged_decode_attention.hpp>
