// How rows of recurrences that go chunk by chunk on the matrix units of GPUs cut a launch: into
// chunks of 64 tokens that follow each other, and columns of states side by side. Kernels and costs
// go by it.
#pragma once

#include <cstdint>

namespace tessera {

inline constexpr std::int64_t tokens_of_chunk = 64;
/// The most channels of a key that such rows take.
inline constexpr int most_chunk_keys = 128;

/// Columns of a state that a block has: more of them share the products of queries and keys, fewer
/// fill more multiprocessors. The bits of a column are the same.
constexpr int columns_of_chunk_block(std::int64_t values, std::int64_t states,
                                     int multiprocessors) noexcept {
  const std::int64_t wide = (values + 127) / 128;
  return values <= 64 || states * wide <= multiprocessors ? 64 : 128;
}

/// Chunks of all sequences, if those are equally long.
constexpr std::int64_t chunks_of_sequences(std::int64_t sequences, std::int64_t tokens) noexcept {
  if (sequences <= 0) return 0;
  const std::int64_t length = (tokens + sequences - 1) / sequences;
  return sequences * ((length + tokens_of_chunk - 1) / tokens_of_chunk);
}

}  // namespace tessera
