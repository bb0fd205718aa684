// How rows of recurrences that go chunk by chunk on the matrix units of GPUs cut a launch: into
// chunks of 64 tokens that follow each other, and columns of states side by side. Kernels and costs
// go by it.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/spec/work_estimate.hpp>

namespace tessera {

inline constexpr std::int64_t tokens_of_chunk = 64;
/// The most channels of a key that such rows take.
inline constexpr int most_chunk_keys = 128;

/// The blocks of a state: each has some of its columns, the values.
struct chunk_blocks {
  int columns = 0;
  std::int64_t count = 0;
};

/// More columns to a block share the products of queries and keys, fewer fill more multiprocessors.
/// The bits of a column are the same.
constexpr chunk_blocks chunk_blocks_of(std::int64_t values, std::int64_t states,
                                       int multiprocessors) noexcept {
  const std::int64_t wide = (values + 127) / 128;
  const int columns = values <= 64 || states * wide <= multiprocessors ? 64 : 128;
  return {columns, (values + columns - 1) / columns};
}

/// Chunks of all sequences, if those are equally long.
constexpr std::int64_t chunks_of_sequences(std::int64_t sequences, std::int64_t tokens) noexcept {
  if (sequences <= 0) return 0;
  const std::int64_t length = (tokens + sequences - 1) / sequences;
  return sequences * ((length + tokens_of_chunk - 1) / tokens_of_chunk);
}

/// What a launch costs besides its products.
constexpr work_estimate estimate_of_chunk_blocks(const chunk_blocks& blocks, std::int64_t states,
                                                 double bytes) noexcept {
  work_estimate work;
  work.footprint_bytes = bytes;
  work.bytes = bytes;
  work.items = std::max<std::int64_t>(1, states * blocks.count);
  work.items_per_core = blocks.columns == 64 ? 2 : 1;
  return work;
}

}  // namespace tessera
