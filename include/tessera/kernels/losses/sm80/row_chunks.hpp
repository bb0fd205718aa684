// Rows of classes as chunks of 16 bytes that threads keep as they are stored.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/kernels/losses/sm80/entropy.hpp>
#include <tessera/kernels/losses/sm80/row_units.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::losses::sm80 {

/// 16 bytes of a row.
template <class Element>
struct row_chunk {
  static constexpr int size = 16 / static_cast<int>(sizeof(Element));
  std::uint32_t word[4];

  __device__ __forceinline__ float at(int i) const {
    if constexpr (sizeof(Element) == 4) {
      return __uint_as_float(word[i]);
    } else {
      const std::uint32_t pair = word[i / 2];
      return prim::cuda::half_words<Element>::unpack(
          static_cast<std::uint16_t>(i % 2 == 0 ? pair : pair >> 16));
    }
  }
  __device__ __forceinline__ void put(int i, float x, float next) {
    if constexpr (sizeof(Element) == 4) {
      word[i] = __float_as_uint(x);
      word[i + 1] = __float_as_uint(next);
    } else {
      word[i / 2] = prim::cuda::half_words<Element>::pack(x, next);
    }
  }
  /// Both elements of each word, or the one of floats: the larger of these and of another's.
  __device__ __forceinline__ void maximize(const row_chunk& other) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (std::is_same_v<Element, bf16>) {
        asm("max.bf16x2 %0, %0, %1;" : "+r"(word[i]) : "r"(other.word[i]));
      } else if constexpr (std::is_same_v<Element, f16>) {
        asm("max.f16x2 %0, %0, %1;" : "+r"(word[i]) : "r"(other.word[i]));
      } else {
        word[i] = __float_as_uint(fmaxf(__uint_as_float(word[i]), __uint_as_float(other.word[i])));
      }
    }
  }
  /// The largest element. A NaN is nobody's maximum.
  __device__ __forceinline__ float largest() const {
    float most = minus_infinity;
#pragma unroll
    for (int i = 0; i < size; ++i) most = fmaxf(at(i), most);
    return most;
  }
  /// Elements are unpacked anew from here on rather than kept.
  __device__ __forceinline__ void keep() {
#pragma unroll
    for (std::uint32_t& each : word) asm volatile("" : "+r"(each));
  }
  static __device__ __forceinline__ row_chunk of(const uint4& words) {
    return {{words.x, words.y, words.z, words.w}};
  }
  __device__ __forceinline__ uint4 words() const {
    return make_uint4(word[0], word[1], word[2], word[3]);
  }
  static __device__ __forceinline__ row_chunk filled(float x) {
    row_chunk made;
#pragma unroll
    for (int i = 0; i < size; i += 2) made.put(i, x, x);
    return made;
  }
};

/// The chunks of a row; its first and last one may hold less, and threads that have them see to
/// that apart.
template <class Element>
struct chunked_row {
  using chunk = row_chunk<Element>;

  Element* begin;  ///< of chunk 0, `lead` places in front of the row
  int lead;
  int chunks, whole_from, whole_to;  ///< which are whole
  std::int64_t end;                  ///< of the row, counted from chunk 0 on

  __device__ __forceinline__ chunked_row(const row_units& units, const unit_row& of)
      : begin(static_cast<Element*>(of.data) - units.lead),
        lead(units.lead),
        chunks(static_cast<int>((units.classes + units.lead + chunk::size - 1) / chunk::size)),
        whole_from(units.lead > 0 ? 1 : 0),
        whole_to(static_cast<int>((units.classes + units.lead) / chunk::size)),
        end(units.classes + units.lead) {}

  __device__ __forceinline__ bool is_whole(int at) const {
    return at >= whole_from && at < whole_to;
  }
  /// A whole chunk; else -inf. `once`: nobody reads it again.
  __device__ __forceinline__ chunk load(int at, bool once = true) const {
    if (!is_whole(at)) return chunk::filled(minus_infinity);
    const auto* const words = reinterpret_cast<const uint4*>(begin) + at;
    return chunk::of(once ? __ldcs(words) : *words);
  }
  __device__ __forceinline__ void store(int at, const chunk& x) const {
    if (!is_whole(at)) return;
    __stcs(reinterpret_cast<uint4*>(begin) + at, x.words());
  }

  /// Calls visit(chunk) for chunk 0 and the last one where they are not whole.
  template <class Visit>
  __device__ __forceinline__ void for_each_edge(const Visit& visit) const {
#pragma unroll 1
    for (int edge = 0; edge < 2; ++edge) {
      const int at = edge * (chunks - 1);
      if ((edge == 0 || at > 0) && !is_whole(at)) visit(at);
    }
  }
  /// Element by element; -inf where the row has none.
  __device__ __forceinline__ chunk load_edge(int at) const {
    const auto of = [&](int i) {
      const std::int64_t place = std::int64_t{at} * chunk::size + i;
      return place >= lead && place < end ? prim::cuda::float_of(begin[place]) : minus_infinity;
    };
    chunk x;
#pragma unroll
    for (int i = 0; i < chunk::size; i += 2) x.put(i, of(i), of(i + 1));
    return x;
  }
  __device__ __forceinline__ void store_edge(int at, const chunk& x) const {
#pragma unroll
    for (int i = 0; i < chunk::size; ++i) {
      const std::int64_t place = std::int64_t{at} * chunk::size + i;
      if (place >= lead && place < end) begin[place] = prim::nearest<Element>(x.at(i));
    }
  }
};

/// Where powers of two are counted from: power(x) is exp(x - largest), times what the rounding of
/// `log2` makes of all powers. Logits that are far from 0, as masks are, lose too much by that, or
/// have no such product: of these the largest is taken off first.
struct power_origin {
  static constexpr float far = 0x1p24f;  ///< below, `log2` is rounded by half at most

  float shift = 0, log2 = 0;

  power_origin() = default;
  __device__ __forceinline__ explicit power_origin(float largest) {
    const float finite = finite_maximum(largest), product = finite * prim::log2_e;
    const bool near = fabsf(product) < far;
    shift = near ? 0.0f : finite;
    log2 = near ? product : 0.0f;
  }

  __device__ __forceinline__ bool is_near() const { return shift == 0; }
  /// Where the origin is near.
  __device__ __forceinline__ float near_power(float x) const {
    return prim::cuda::exp2_fast(fmaf(x, prim::log2_e, -log2));
  }
  __device__ __forceinline__ float power(float x) const {
    return prim::cuda::exp2_fast(fmaf(x - shift, prim::log2_e, -log2));
  }
  /// What makes powers from here of those from another origin, which is not above.
  __device__ __forceinline__ float factor_of(const power_origin& other) const {
    return prim::cuda::exp2_fast(fmaf(other.shift - shift, prim::log2_e, other.log2 - log2));
  }
  /// What makes exp(x - largest) of a power.
  __device__ __forceinline__ float factor_from(float largest) const {
    return prim::cuda::exp2_fast(-fmaf(finite_maximum(largest) - shift, prim::log2_e, -log2));
  }
};

template <class Element, int Chunks>
__device__ __forceinline__ float largest_of(const row_chunk<Element> (&x)[Chunks]) {
  row_chunk<Element> most = x[0];
#pragma unroll
  for (int i = 1; i < Chunks; ++i) most.maximize(x[i]);
  return most.largest();
}
template <class Element, int Chunks>
__device__ __forceinline__ float powers_of(const row_chunk<Element> (&x)[Chunks],
                                           const power_origin& origin) {
  const auto sum = [&](const auto& power) {
    float powers[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < Chunks; ++i) {
#pragma unroll
      for (int j = 0; j < row_chunk<Element>::size; ++j) powers[j % 2] += power(x[i].at(j));
    }
    return powers[0] + powers[1];
  };
  if (origin.is_near()) return sum([&](float each) { return origin.near_power(each); });
  return sum([&](float each) { return origin.power(each); });
}

/// Adds chunks to sums, whose maximum moves once.
template <class Element, int Chunks>
__device__ __forceinline__ void add_chunks(logit_sums& sums,
                                           const row_chunk<Element> (&x)[Chunks]) {
  const float most = fmaxf(largest_of(x), sums.maximum);
  if (most > sums.maximum) sums.move_to(most);
  const power_origin origin(most);
  sums.powers = fmaf(powers_of(x, origin), origin.factor_from(most), sums.powers);
}

/// What a thread adds up of a row of logits alone: the next chunks are on their way meanwhile.
template <int Chunks, class Element>
__device__ __forceinline__ logit_sums sums_of_stream(const row_team& team,
                                                     const chunked_row<Element>& row) {
  logit_sums sums;
  row_chunk<Element> next[Chunks];
  const auto load = [&](int chunk) {
#pragma unroll
    for (int i = 0; i < Chunks; ++i) next[i] = row.load(chunk + i * team.threads);
  };
  load(team.thread);
  for (int chunk = team.thread; chunk < row.chunks;) {
    row_chunk<Element> now[Chunks];
#pragma unroll
    for (int i = 0; i < Chunks; ++i) now[i] = next[i];
    chunk += Chunks * team.threads;
    if (chunk < row.chunks) load(chunk);
    add_chunks(sums, now);
  }
  row.for_each_edge([&](int at) {
    if (at % team.threads != team.thread) return;
    row_chunk<Element> edge[1] = {row.load_edge(at)};
    add_chunks(sums, edge);
  });
  return sums;
}

}  // namespace tessera::kernels::losses::sm80
