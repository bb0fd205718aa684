// The workspace of the gradients of the delta rule by chunks: what the kernels of
// chunk_weights.hpp, chunk_back_scans.hpp and chunk_gradients.hpp leave each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/families/recurrent_chunks.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_tiles.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cuda/async_copy.hpp>

namespace tessera::kernels::delta_rule::sm80 {

/// What the gates and lengths of a chunk's tokens come to; 0 behind the last token but for decays.
struct alignas(16) chunk_gates {
  recurrence::sm80::head_decays decays;
  float beta[64];
  float scale_q[64], scale_k[64];  ///< 1 over lengths, or 1; of q times the scale of the call
  float inverse_q[64];             ///< 1 over the length of q, or 1
};

/// Rows of the channels of 64 tokens, with what is left of them: of queries and keys that read the
/// state in front of a chunk, and of keys that write to the one behind it.
struct chunk_channel_rows {
  std::uint16_t *queries = nullptr, *reads = nullptr, *writes = nullptr;
};

/// What all kernels of a launch know besides its arguments. Chunks of all sequences are numbered;
/// of each and each value head there are
struct chunk_back_args {
  delta_rule_kernel_args call{};
  std::int64_t chunks_of_entry = 0;  ///< 0: packed
  int value_tiles = 0;               ///< tiles of 16 values
  chunk_gates* gates = nullptr;
  /// M and P, rounded, as tiles of shared memory.
  unsigned char *inverses = nullptr, *weights = nullptr;
  /// S in front of the chunk and the gradient D of the state behind it, rounded, as operands B
  /// [values, channels]: [tile of 16 channels][tile of 16 values][lane].
  uint4 *of_s = nullptr, *of_d = nullptr;
  /// What tokens write, d, and the gradient of what they miss, r: rows of 64 tokens.
  std::uint16_t *written = nullptr, *d_missing = nullptr;
  /// Of dt_bias and A_log; null: no raw gates.
  double* gate_sums = nullptr;  ///< [chunk][HV][2], of decays of channels [chunk][HV][2][K]
  /// Of decays of channels, with as many channels as the row has keys: rows, sums of log decays to
  /// base 2 up to each token, and what a chunk leaves of the state in front of it.
  chunk_channel_rows channels{};
  float *sums = nullptr, *whole = nullptr;

  /// Number of a chunk's value head.
  TESSERA_HD std::int64_t place_of(const sequence& all, std::int64_t chunk,
                                   std::int64_t head) const {
    const std::int64_t first = chunks_of_entry == 0 ? all.begin / tokens_of_chunk + all.number
                                                    : all.entry * chunks_of_entry;
    return (first + chunk) * call.value_heads + head;
  }
  TESSERA_HD std::int64_t values() const { return std::int64_t{value_tiles} * 16; }
  TESSERA_HD chunk_channel_rows rows_of(std::int64_t place, int keys) const {
    const std::int64_t at = place * tokens_of_chunk * keys;
    return {channels.queries + at, channels.reads + at, channels.writes + at};
  }
  TESSERA_HD float* sums_of(std::int64_t place, int keys) const {
    return sums + place * tokens_of_chunk * keys;
  }
  TESSERA_HD std::int64_t row_of_chunk(std::int64_t place) const {
    return place * tokens_of_chunk * values();
  }
};

/// The workspace of a launch, placed from `base` on; null: nothing is placed. Depends on no
/// address.
struct chunk_back_scratch {
  chunk_back_args args{};
  /// Gradients of q and k by value head, or those of the call.
  delta_rule_output d_q{}, d_k{};
  std::int64_t places = 0;
  std::int64_t gate_numbers = 0;  ///< of `gate_sums`
  std::size_t bytes = 0;

  /// `key_dim`: of the row.
  chunk_back_scratch(const delta_rule_kernel_args& call, int key_dim, std::byte* base)
      : d_q(call.d_q), d_k(call.d_k) {
    cuda::workspace_parts parts(base);
    const std::int64_t entries = recurrence::entries_of(call);
    const std::int64_t of_entry = (call.tokens + tokens_of_chunk - 1) / tokens_of_chunk;
    const bool packed = call.cu_seqlens != nullptr;
    args.call = call;
    args.chunks_of_entry = packed ? 0 : of_entry;
    args.value_tiles = static_cast<int>((call.value_dim + 15) / 16);
    places = (packed ? of_entry + call.sequences : entries * of_entry) * call.value_heads;
    parts.take(args.gates, places);
    parts.take(args.inverses, places * matrix_bytes);
    parts.take(args.weights, places * matrix_bytes);
    parts.take(args.of_s, places * args.value_tiles * key_dim * 2);
    parts.take(args.of_d, places * args.value_tiles * key_dim * 2);
    parts.take(args.written, places * tokens_of_chunk * args.values());
    parts.take(args.d_missing, places * tokens_of_chunk * args.values());
    if (call.decay_has_channels) {
      const std::int64_t numbers = places * tokens_of_chunk * key_dim;
      parts.take(args.channels.queries, numbers);
      parts.take(args.channels.reads, numbers);
      parts.take(args.channels.writes, numbers);
      parts.take(args.sums, numbers);
      parts.take(args.whole, places * key_dim);
    }
    if (call.gate.raw) {
      gate_numbers = places * 2 * (call.decay_has_channels ? key_dim : 1);
      parts.take(args.gate_sums, gate_numbers);
    }
    if (call.value_heads != call.key_heads) {
      share(parts, d_q, entries);
      share(parts, d_k, entries);
    }
    bytes = parts.bytes();
  }

  static constexpr std::int64_t matrix_bytes = tokens_of_chunk * tokens_of_chunk * 2;

 private:
  void share(cuda::workspace_parts& parts, delta_rule_output& rows, std::int64_t entries) const {
    const delta_rule_kernel_args& call = args.call;
    float* numbers = nullptr;
    parts.take(numbers, entries * call.tokens * call.value_heads * call.key_dim);
    rows = {.data = numbers,
            .type = dtype::f32,
            .entry = call.tokens * call.value_heads * call.key_dim,
            .token = call.value_heads * call.key_dim,
            .head = call.key_dim};
  }
};

/// Starts to copy whole pieces of 16 bytes between addresses that are multiples of 16.
template <int Bytes, int Threads>
__device__ __forceinline__ void copy_piece(void* to, const void* from) {
  static_assert(Bytes % 16 == 0);
  const std::uint32_t first = prim::cuda::shared_address(to);
  for (int at = static_cast<int>(threadIdx.x) * 16; at < Bytes; at += Threads * 16) {
    prim::cuda::copy_async_16(first + static_cast<std::uint32_t>(at),
                              static_cast<const unsigned char*>(from) + at);
  }
}

/// Chunks of the longest sequence that blocks of a grid take side by side, if its length is known;
/// longer ones are taken in turn.
inline unsigned chunks_side_by_side(const delta_rule_kernel_args& call) {
  const std::int64_t average =
      call.tokens / (call.sequences > 0 ? call.sequences : std::int64_t{1});
  const std::int64_t length =
      call.cu_seqlens != nullptr && 4 * average < call.tokens ? 4 * average : call.tokens;
  const std::int64_t chunks = (length + tokens_of_chunk - 1) / tokens_of_chunk;
  return static_cast<unsigned>(chunks < 1 ? 1 : chunks > UINT16_MAX ? UINT16_MAX : chunks);
}

}  // namespace tessera::kernels::delta_rule::sm80
