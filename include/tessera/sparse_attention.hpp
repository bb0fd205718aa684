// blocksparse_attention and native_sparse_attention with their gradients: one call, or plan once
// and run.
#pragma once

#include <tessera/api/sparse_attention.hpp>
