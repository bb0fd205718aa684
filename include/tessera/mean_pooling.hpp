// mean_pooling and mean_pooling_chunks with their gradients: one call, or plan once and run.
#pragma once

#include <tessera/api/mean_pooling.hpp>
