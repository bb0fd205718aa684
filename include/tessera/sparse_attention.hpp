// blocksparse_attention with its gradients: one call, or plan once and run.
#pragma once

#include <tessera/api/sparse_attention.hpp>
