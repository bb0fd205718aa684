// blocksparse_attention and native_sparse_attention with their gradients, and block_selection: one
// call, or plan once and run; masks of blocks.
#pragma once

#include <tessera/api/block_mask.hpp>
#include <tessera/api/sparse_attention.hpp>
