// ragged_page_attention_v2 and _v3: one call, or plan once and run many times.
#pragma once

#include <tessera/api/ragged_page_attention.hpp>
