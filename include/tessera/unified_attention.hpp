// unified_attention and chunked_prefill_paged_decode: one call, or plan once and run many times.
#pragma once

#include <tessera/api/unified_attention.hpp>
