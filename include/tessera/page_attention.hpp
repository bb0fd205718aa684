// page_attention: one call, or plan once and run many times.
#pragma once

#include <tessera/api/page_attention.hpp>
