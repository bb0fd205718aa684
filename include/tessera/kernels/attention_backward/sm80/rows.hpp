// What is known of rows and keys before the products, and the gradients of sinks.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tessera/kernels/attention_backward/sm80/block.hpp>
#include <tessera/prim/cuda/element_cast.hpp>

namespace tessera::kernels::attention_backward::sm80 {

__device__ __forceinline__ float statistic_of(const row_statistics& from, const prim::sequence& seq,
                                              int head, std::int64_t query) {
  return from.data[seq.index * from.batch + head * from.head + (seq.q_begin + query) * from.row];
}

/// Neighbouring lanes that look at a row together, `Vector` elements at a time: as many as a row of
/// one head dim needs, or a whole warp.
template <class Element, int Vector, int Width>
struct row_lanes {
  static constexpr int count = Width == 0 || Width > 128 ? 32 : Width > 64 ? 16 : 8;
  static constexpr int rows_of_block = threads / count;

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % count; }
  static __device__ __forceinline__ unsigned mask() {
    const unsigned first = threadIdx.x % 32 / count * count;
    return (prim::cuda::all_lanes >> (32 - count)) << first;
  }
  /// The row of this lane among those of all blocks.
  static __device__ __forceinline__ std::int64_t row() {
    return std::int64_t{blockIdx.x} * rows_of_block + threadIdx.x / count;
  }

  /// Calls body(elements) for those of a row that a lane has.
  template <class Body>
  static __device__ __forceinline__ void for_each_part(const Element* row, int columns,
                                                       const Body& body) {
    using part = prim::cuda::element_vector<Element, Vector>;
    for (int d = lane() * Vector; d < columns; d += count * Vector) {
      body(*reinterpret_cast<const part*>(row + d), d);
    }
  }

  /// Whether all elements of a part are finite.
  template <class Part>
  static __device__ __forceinline__ bool is_finite(const Part& part) {
    if constexpr (sizeof(part) == 16 && sizeof(Element) == 2) {
      std::uint32_t words[4], found = 0;
      memcpy(words, &part, sizeof(part));
#pragma unroll
      for (const std::uint32_t word : words) found |= marked_not_finite<Element>(word);
      return (found & not_finite_marks) == 0;
    } else {
      bool finite = true;
      for (const Element x : part.x) {
        finite = finite && fabsf(prim::cuda::float_of(x)) < infinite();
      }
      return finite;
    }
  }
  /// Whether this lane's elements of a row are finite.
  static __device__ __forceinline__ bool row_is_finite(const Element* row, int columns) {
    bool finite = true;
    for_each_part(row, columns, [&](const auto& part, int) { finite = is_finite(part) && finite; });
    return finite;
  }
  /// This lane's part of a row that lanes have once at most, zeros behind its columns.
  using part_type = prim::cuda::element_vector<Element, Vector>;
  static __device__ __forceinline__ part_type part_of(const Element* row, int columns) {
    static_assert(Width <= count * Vector);
    const int d = lane() * Vector;
    return d < columns ? *reinterpret_cast<const part_type*>(row + d) : part_type{};
  }
  static __device__ __forceinline__ float product(const part_type& a, const part_type& b) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < Vector; ++i) {
      sum += prim::cuda::float_of(a.x[i]) * prim::cuda::float_of(b.x[i]);
    }
    return sum;
  }

  /// Whether it holds for all lanes of the row.
  static __device__ __forceinline__ bool all(bool holds) {
    return __all_sync(mask(), holds) != 0;
  }

  static __device__ __forceinline__ float sum(float x) {
#pragma unroll
    for (int step = count / 2; step > 0; step /= 2) x += __shfl_xor_sync(mask(), x, step);
    return x;
  }

  /// A token of all entries as a sequence and its number there.
  struct place {
    std::int64_t index = 0, token = 0;
  };
  /// `offsets`: of packed sequences, where token belongs to number `entries` if to none.
  static __device__ __forceinline__ place place_of(const std::int32_t* offsets,
                                                   std::int64_t entries, std::int64_t length,
                                                   std::int64_t token) {
    if (offsets == nullptr) return {token / length, token % length};
    for (std::int64_t first = 0; first < entries; first += count) {
      const std::int64_t index = first + lane();
      const bool here = index < entries && offsets[index] <= token && token < offsets[index + 1];
      const unsigned found = __ballot_sync(mask(), here);
      if (found == 0) continue;
      const std::int64_t at = first + (__ffs(static_cast<int>(found)) - 1) % count;
      return {at, token - offsets[at]};
    }
    return {entries, 0};
  }
};

/// What is known of a row: whether elements of q or d_out are not finite, and of the product of
/// d_out and out what a lane has.
template <class Element, int Vector, int Width>
struct row_part {
  float lse;
  bool finite;
  float product;
};

/// Heads of a token whose rows neighbouring lanes look at together: what they load is under way at
/// the same time.
inline constexpr int heads_at_once = 4;

template <class Element, int Vector, int Width>
__device__ __forceinline__ void look_at_rows(
    const launch_args& args, const prim::sequence& seq, std::int64_t query, int first_head,
    row_part<Element, Vector, Width> (&found)[heads_at_once]) {
  using lanes = row_lanes<Element, Vector, Width>;
  const attention_kernel_args& of = args.call.forward;
  const std::int64_t row = seq.q_begin + query;
  const auto rows_of = [&](int h, const void* data, const row_strides& strides) {
    return row_of<Element>(data, strides, seq, row, min(first_head + h, of.q_heads - 1));
  };
  const void* const out = of.normalize ? of.out : args.call.d_out;  // what is there
  const row_strides& out_strides = of.normalize ? of.out_strides : args.call.d_out_strides;
  if constexpr (Width > 0) {
    const auto part_of_q = [&](int h) {
      return lanes::part_of(rows_of(h, of.q, of.q_strides), of.head_dim);
    };
    typename lanes::part_type d_out[heads_at_once], own[heads_at_once];
#pragma unroll
    for (int h = 0; h < heads_at_once; ++h) {
      found[h].lse = statistic_of(of.lse, seq, min(first_head + h, of.q_heads - 1), query);
      d_out[h] =
          lanes::part_of(rows_of(h, args.call.d_out, args.call.d_out_strides), of.v_head_dim);
      own[h] = lanes::part_of(rows_of(h, out, out_strides), of.v_head_dim);
    }
#pragma unroll
    for (int h = 0; h < heads_at_once; ++h) {
      found[h].finite = lanes::is_finite(d_out[h]);
      found[h].product = lanes::product(d_out[h], own[h]);
    }
    if (args.lse_tells) {
#pragma unroll
      for (int h = 0; h < heads_at_once; ++h) {
        if (fabsf(found[h].lse) < infinite()) continue;
        found[h].finite = lanes::is_finite(part_of_q(h)) && found[h].finite;
      }
      return;
    }
    typename lanes::part_type q[heads_at_once];
#pragma unroll
    for (int h = 0; h < heads_at_once; ++h) q[h] = part_of_q(h);
#pragma unroll
    for (int h = 0; h < heads_at_once; ++h) {
      found[h].finite = lanes::is_finite(q[h]) && found[h].finite;
    }
  } else {
    for (int h = 0; h < heads_at_once; ++h) {
      found[h].lse = statistic_of(of.lse, seq, min(first_head + h, of.q_heads - 1), query);
      found[h].finite = lanes::row_is_finite(rows_of(h, of.q, of.q_strides), of.head_dim);
      found[h].product = 0.0f;
      const Element* const own = rows_of(h, out, out_strides);
      lanes::for_each_part(
          rows_of(h, args.call.d_out, args.call.d_out_strides), of.v_head_dim,
          [&](const auto& part, int d) {
            found[h].finite = lanes::is_finite(part) && found[h].finite;
            found[h].product +=
                lanes::product(part, *reinterpret_cast<const typename lanes::part_type*>(own + d));
          });
    }
  }
}

/// Shift and correction of each row and head,
///   sum of d_out out - d_lse.
template <class Element, int Vector, int Width>
__global__ void __launch_bounds__(threads) describe_rows(const __grid_constant__ launch_args args) {
  using lanes = row_lanes<Element, Vector, Width>;
  const attention_kernel_args& of = args.call.forward;
  const std::int64_t item = lanes::row();
  const int parts = (of.q_heads + heads_at_once - 1) / heads_at_once;
  const std::int64_t token = item / parts;
  const int first_head = static_cast<int>(item - token * parts) * heads_at_once;
  if (token >= args.rows) return;
  const auto [index, query] = lanes::place_of(of.cu_seqlens_q, of.batch, of.q_len, token);
  if (index >= of.batch) return;
  const block_sequence block = block_sequence::of(of, index);
  const prim::sequence& seq = block.seq;
  if (query >= seq.q_len) return;
  row_part<Element, Vector, Width> found[heads_at_once];
  look_at_rows(args, seq, query, first_head, found);
#pragma unroll
  for (int h = 0; h < heads_at_once; ++h) {
    const int head = first_head + h;
    if (head >= of.q_heads) break;
    float shift = infinite(), correction = 0.0f;
    const float product = lanes::sum(found[h].product);
    const bool finite = lanes::all(found[h].finite);
    // Rows that see nothing may hold anything.
    const float lse = found[h].lse;
    if (lse != prim::minus_infinity) {
      shift = of.normalize ? lse : statistic_of(of.row_max, seq, head, query);
      correction = of.normalize ? product : 0.0f;
      if (args.call.d_lse.data != nullptr) {
        const float unit = of.normalize ? 1.0f : expf(shift - lse);
        correction -= statistic_of(args.call.d_lse, seq, head, query) * unit;
      }
      if (!finite) shift = not_a_number();
    }
    if (lanes::lane() != 0) continue;
    const std::int64_t place = head * args.rows + block.row(of, query);
    args.shift[place] = shift * args.shift_unit;
    args.correction[place] = correction;
  }
}

/// The taint of each key and head.
template <class Element, int Vector, int Width>
__global__ void __launch_bounds__(threads) describe_keys(const __grid_constant__ launch_args args) {
  using lanes = row_lanes<Element, Vector, Width>;
  const attention_kernel_args& of = args.call.forward;
  const std::int64_t item = lanes::row();
  const int head = static_cast<int>(item % of.kv_heads);
  const std::int64_t token = item / of.kv_heads;
  if (token >= args.keys) return;
  const auto [index, key] = lanes::place_of(of.cu_seqlens_k, of.batch, of.kv_len, token);
  if (index >= of.batch) return;
  const block_sequence block = block_sequence::of(of, index);
  const prim::sequence& seq = block.seq;
  if (key >= seq.k_len) return;
  const std::int64_t row = seq.k_begin + key;
  const bool k = lanes::all(
      lanes::row_is_finite(row_of<Element>(of.k, of.k_strides, seq, row, head), of.head_dim));
  const bool v = lanes::all(
      lanes::row_is_finite(row_of<Element>(of.v, of.v_strides, seq, row, head), of.v_head_dim));
  if (lanes::lane() != 0) return;
  args.taint[head * args.keys + block.key(of, key)] = {k ? 0.0f : not_a_number(),
                                                       v ? 0.0f : not_a_number()};
}

/// A block for each element of d_sinks, whose threads add up in one order.
static __global__ void __launch_bounds__(threads)
    sink_gradients(const __grid_constant__ launch_args args) {
  __shared__ double sums[threads];
  const attention_kernel_args& of = args.call.forward;
  const std::int64_t sink_row = blockIdx.x / of.sink_count;
  const int t = static_cast<int>(blockIdx.x % of.sink_count);
  const int first = args.call.d_sink_heads == 1 ? 0 : static_cast<int>(sink_row);
  const int end = args.call.d_sink_heads == 1 ? of.q_heads : first + 1;
  double sum = 0;
  for (int head = first; head < end; ++head) {
    const float sink = of.sinks[head * of.sink_head_stride + t * of.sink_stride];
    for (std::int64_t index = 0; index < of.batch; ++index) {
      const block_sequence block = block_sequence::of(of, index);
      for (std::int64_t query = threadIdx.x; query < block.seq.q_len; query += threads) {
        const std::int64_t place = head * args.rows + block.row(of, query);
        if (args.shift[place] == infinite()) continue;
        // Rows with elements that are not finite may see nothing but sinks.
        const float shift =
            statistic_of(of.normalize ? of.lse : of.row_max, block.seq, head, query);
        const float weight = sink == shift ? 1.0f : expf(sink - shift);
        sum -= static_cast<double>(weight) * static_cast<double>(args.correction[place]);
      }
    }
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned step = threads / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  args.call.d_sinks[sink_row * args.call.d_sink_head_stride + t * args.call.d_sink_stride] =
      static_cast<float>(sums[0]);
}

}  // namespace tessera::kernels::attention_backward::sm80
