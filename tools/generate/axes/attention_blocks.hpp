// What a block of the axes of flash attention, forward, is made of.
#pragma once

#include <string_view>
#include <vector>

#include <tessera/families/attention/config.hpp>

namespace tessera::generate {

/// Head dim of q and k and, where it differs, of v. 0: any, known at run time.
struct head_dims {
  int qk = 0;
  int v = 0;
};

/// Most query rows of a work item, keys of a block and, for CUDA, how warps share them.
struct tile {
  int block_q = 0;
  int block_kv = 0;
  cuda_tiling threads{};
};

/// One product of axis values.
struct attention_axes {
  std::string_view about;
  std::vector<backend> targets;
  std::vector<dtype> types{dtype::f32, dtype::f16, dtype::bf16};
  std::vector<head_dims> dims{{}};
  std::vector<attention_phase> phases{attention_phase::prefill};
  std::vector<key_storage> keys{key_storage::contiguous};
  std::vector<attention_features> features{base_features};
  std::vector<tile> tiles;
};

}  // namespace tessera::generate
