// kv_cache_append and kv_cache_copy: one call, or plan once and run.
#pragma once

#include <tessera/api/kv_cache.hpp>
