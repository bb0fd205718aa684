// The two scans of the way back by chunks, each over the states of a sequence and head as in
// chunk_forward.hpp, of which these have M and P from chunk_weights.hpp. Forward again, for S in
// front of each chunk and for d; then from the last chunk to the first for D, the gradient of the
// state behind a chunk, and for the gradient of r, with do that of the outputs:
//
//   d_r = M^T (P^T do + exp(G_end - G_t) D^T k_t)      d_v = beta d_r
//   D <- exp(G_end) D + sum over t of exp(G_t) k'_t d'_t^T,  k' d'^T = scale q do^T - beta k d_r^T
//
// `for each chunk { keep the state; columns; times M; store them; state }`. A block has 64 columns,
// a warp 16 of them in registers, and the next chunk is on its way meanwhile. With decays of
// channels, rows that read the state and rows that write to it are those of chunk_channels.hpp.
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/sm80/chunk_back_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_columns.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_memory.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_answers.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_tiles.hpp>
#include <tessera/kernels/recurrence/sm80/warp_state.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/transposed_tile.hpp>

namespace tessera::kernels::delta_rule::sm80 {

using prim::cuda::transposed_tile;
using recurrence::sm80::ordered_rows;

/// Shared memory of a block: what two chunks have, and on the way back what the scan is done with
/// in the middle of a chunk.
template <class Shape, bool Back, bool Channels>
struct scan_memory {
  struct alignas(1024) one_chunk {
    unsigned char k[Shape::key_rows::bytes];         ///< of channels those that write
    unsigned char values[Shape::value_rows::bytes];  ///< v or do; what is stored, at last
    chunk_gates gates;
    alignas(16) float whole[Channels ? Shape::keys : 4];  ///< what is left of channels
  };
  one_chunk chunks[2];
  alignas(1024) unsigned char inverse[Shape::weight_rows::bytes];
  unsigned char weights[Back ? Shape::weight_rows::bytes : 128];
  unsigned char q[Back ? Shape::key_rows::bytes : 128];
  unsigned char reads[Channels ? Shape::key_rows::bytes : 128];
  ordered_rows rows_q, rows_k, rows_values, rows_d_v;
};

template <class Element, class Shape, bool Back, bool Channels>
class delta_chunk_scan {
  using memory = scan_memory<Shape, Back, Channels>;
  using one_chunk = typename memory::one_chunk;
  using words = prim::cuda::half_words<Element>;
  using key_rows = typename Shape::key_rows;
  using value_rows = typename Shape::value_rows;
  using state_type = recurrence::sm80::warp_state<Shape::keys, 1>;

 public:
  __device__ __forceinline__ delta_chunk_scan(const chunk_back_args& args, memory& shared,
                                              const sequence& all, std::int64_t head,
                                              std::int64_t column)
      : args_(args),
        call_(args.call),
        shared_(shared),
        all_(all),
        head_(head),
        column_(column),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {
    if (threadIdx.x == 0) {
      const std::int64_t key_head =
          recurrence::shared_head(head, call_.value_heads, call_.key_heads);
      shared.rows_q = ordered_rows::of(call_.q, all, key_head);
      shared.rows_k = ordered_rows::of(call_.k, all, key_head);
      shared.rows_values = ordered_rows::of(Back ? call_.d_out : call_.v, all, head);
      if (Back) shared.rows_d_v = ordered_rows::of(call_.d_v, all, head);
    }
    __syncthreads();
  }

  __device__ __forceinline__ void go_through(state_type& state) {
    const std::int64_t chunks = (all_.length + Shape::tokens - 1) / Shape::tokens;
    const auto number = [&](std::int64_t i) { return Back ? chunks - 1 - i : i; };
    copy_chunk(shared_.chunks[0], number(0));
    copy_matrices(number(0));
    for (std::int64_t i = 0; i < chunks; ++i) {
      one_chunk& now = shared_.chunks[i % 2];
      prim::cuda::wait_copies<0>();
      __syncthreads();
      if (i + 1 < chunks) copy_chunk(shared_.chunks[(i + 1) % 2], number(i + 1));
      const std::int64_t chunk = number(i), place = args_.place_of(all_, chunk, head_);
      const std::int64_t next = i + 1 < chunks ? number(i + 1) : -1;
      keep(state, place);
      chunk_columns columns = {};
      columns.template read<Element, Shape>(state, Channels ? shared_.reads : now.k);
      if constexpr (Channels) {
        state.multiply_channels(now.whole);
      } else {
        columns.multiply_tokens(now.gates.scale_k);
        state.multiply(now.gates.decays.whole);
      }
      if constexpr (Back) {
        go_back(state, columns, now, chunk, next);
      } else {
        go_on(state, columns, now, place, next);
      }
    }
  }

 private:
  __device__ __forceinline__ int count_at(std::int64_t chunk) const {
    return static_cast<int>(
        min(all_.length - chunk * Shape::tokens, static_cast<std::int64_t>(Shape::tokens)));
  }
  __device__ __forceinline__ void copy_chunk(one_chunk& to, std::int64_t chunk) const {
    using recurrence::sm80::copy_rows;
    const std::int64_t token = chunk * Shape::tokens, place = args_.place_of(all_, chunk, head_);
    const int count = count_at(chunk), keys = static_cast<int>(call_.key_dim);
    const delta_rule_input& values = Back ? call_.d_out : call_.v;
    if constexpr (Channels) {
      const chunk_channel_rows rows = args_.rows_of(place, Shape::keys);
      copy_channels(to.k, Back ? rows.reads : rows.writes);
      copy_piece<Shape::keys * sizeof(float), Shape::threads>(to.whole,
                                                              args_.whole + place * Shape::keys);
    } else {
      copy_rows<Element, key_rows, Shape::threads>(prim::cuda::shared_address(to.k), call_.k.data,
                                                   shared_.rows_k, token, count, keys);
    }
    copy_rows<Element, value_rows, Shape::threads>(
        prim::cuda::shared_address(to.values), static_cast<const Element*>(values.data) + column_,
        shared_.rows_values, token, count, static_cast<int>(call_.value_dim - column_));
    copy_piece<sizeof(chunk_gates), Shape::threads>(&to.gates, args_.gates + place);
    prim::cuda::commit_copies();
  }

  /// Rows of 64 tokens and all channels, as chunk_channels.hpp leaves them.
  static __device__ __forceinline__ void copy_channels(unsigned char* to,
                                                       const std::uint16_t* rows) {
    recurrence::sm80::copy_rows<Element, key_rows, Shape::threads>(
        prim::cuda::shared_address(to), rows, {0, Shape::keys}, 0, Shape::tokens, Shape::keys);
  }
  /// What all warps are done with before they have changed the state; -1: no chunk.
  __device__ __forceinline__ void copy_matrices(std::int64_t chunk) const {
    if (chunk < 0) return;
    const std::int64_t place = args_.place_of(all_, chunk, head_);
    const std::int64_t matrix = place * Shape::weight_rows::bytes;
    copy_piece<Shape::weight_rows::bytes, Shape::threads>(shared_.inverse, args_.inverses + matrix);
    if constexpr (Back) {
      copy_piece<Shape::weight_rows::bytes, Shape::threads>(shared_.weights,
                                                            args_.weights + matrix);
    }
    if constexpr (Channels) {
      const chunk_channel_rows rows = args_.rows_of(place, Shape::keys);
      copy_channels(shared_.reads, Back ? rows.writes : rows.reads);
      if (Back) copy_channels(shared_.q, rows.queries);
    } else if constexpr (Back) {
      recurrence::sm80::copy_rows<Element, key_rows, Shape::threads>(
          prim::cuda::shared_address(shared_.q), call_.q.data, shared_.rows_q,
          chunk * Shape::tokens, count_at(chunk), static_cast<int>(call_.key_dim));
    }
    prim::cuda::commit_copies();
  }

  /// The columns of the state as operands of the gradients: tiles of channels by values.
  __device__ __forceinline__ void keep(const state_type& state, std::int64_t place) const {
    const int tile = static_cast<int>(column_) / 16 + warp_;
    if (tile >= args_.value_tiles) return;
    constexpr int tiles = Shape::keys / 16;
    uint4* const to =
        (Back ? args_.of_d : args_.of_s) + (place * tiles * args_.value_tiles + tile) * 32 + lane_;
#pragma unroll
    for (int channels = 0; channels < tiles; ++channels) {
      const prim::cuda::fragment_b2 held = state.template operand<Element>(0, channels);
      // Registers: channels 0 to 7 and 8 to 15 of the first eight values, then of the others.
      to[channels * args_.value_tiles * 32] =
          make_uint4(transposed_tile(held.reg[0]), transposed_tile(held.reg[2]),
                     transposed_tile(held.reg[1]), transposed_tile(held.reg[3]));
    }
  }

  __device__ __forceinline__ void go_on(state_type& state, chunk_columns& columns, one_chunk& now,
                                        std::int64_t place, std::int64_t next) const {
    if constexpr (!Channels) columns.multiply_tokens(now.gates.decays.front);
    columns.template subtract_from<Element, Shape>(now.values, warp_);
    columns.multiply_tokens(now.gates.beta);
    columns.template multiply<Element, Shape>(shared_.inverse);
    __syncthreads();
    copy_matrices(next);
    stage(now, columns);
    store_rows(now, args_.written, place);
    if constexpr (!Channels) {
      columns.multiply_tokens(now.gates.scale_k);
      columns.multiply_tokens(now.gates.decays.rest);
    }
    add(state, columns, now.k);
  }

  __device__ __forceinline__ void go_back(state_type& state, chunk_columns& columns, one_chunk& now,
                                          std::int64_t chunk, std::int64_t next) const {
    const std::uint32_t q = prim::cuda::shared_address(shared_.q) +
                            key_rows::lane_of_a(prim::cuda::thread_index() % 32);
    if constexpr (!Channels) columns.multiply_tokens(now.gates.decays.rest);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const prim::cuda::fragment_b2 d_out =
          chunk_columns::values_of<Shape>(now.values, step, warp_);
      columns.template add_transposed<Element, Shape>(shared_.weights, step,
                                                      recurrence::sm80::transposed(d_out));
      const prim::cuda::fragment_a added[1] = {
          recurrence::sm80::transposed(Channels ? d_out : scaled(d_out, now.gates, step))};
      state.template add_tokens<Element, key_rows>(added, q, step);
    }
    chunk_columns d_missing = {};
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      d_missing.template add_transposed<Element, Shape>(
          shared_.inverse, step,
          recurrence::sm80::transposed(columns.template operand<Element>(step)));
    }
    __syncthreads();
    copy_matrices(next);
    stage(now, d_missing);
    store_rows(now, args_.d_missing, args_.place_of(all_, chunk, head_));
    d_missing.multiply_tokens(now.gates.beta);
    stage(now, d_missing);
    store_d_v(now, chunk);
    if constexpr (!Channels) {
      d_missing.multiply_tokens(now.gates.scale_k);
      d_missing.multiply_tokens(now.gates.decays.front);
    }
    d_missing.negate();
    add(state, d_missing, now.k);
  }
  /// Gradients of outputs times what is left of the state in front, and the factors of q.
  __device__ __forceinline__ prim::cuda::fragment_b2 scaled(const prim::cuda::fragment_b2& d_out,
                                                            const chunk_gates& gates,
                                                            int step) const {
    prim::cuda::fragment_b2 result;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = step * 16 + i % 2 * 8 + lane_ % 4 * 2;
      const float2 front = *reinterpret_cast<const float2*>(gates.decays.front + token);
      const float2 scale = *reinterpret_cast<const float2*>(gates.scale_q + token);
      const std::uint32_t word = d_out.reg[i];
      result.reg[i] =
          words::pack(words::unpack(static_cast<std::uint16_t>(word)) * (front.x * scale.x),
                      words::unpack(static_cast<std::uint16_t>(word >> 16)) * (front.y * scale.y));
    }
    return result;
  }
  __device__ __forceinline__ void add(state_type& state, const chunk_columns& columns,
                                      const unsigned char* keys) const {
    const std::uint32_t k =
        prim::cuda::shared_address(keys) + key_rows::lane_of_a(prim::cuda::thread_index() % 32);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const prim::cuda::fragment_a added[1] = {
          recurrence::sm80::transposed(columns.template operand<Element>(step))};
      state.template add_tokens<Element, key_rows>(added, k, step);
    }
  }

  /// Rows of tokens, in the place of the values of the warp, which nobody reads again.
  __device__ __forceinline__ void stage(one_chunk& now, const chunk_columns& columns) const {
    const std::uint32_t staged = prim::cuda::shared_address(now.values);
    __syncwarp();
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* const x = columns.at[n].at + 2 * half;
        prim::cuda::store_shared_4(
            staged +
                value_rows::offset(static_cast<std::uint32_t>(n * 8 + lane_ / 4),
                                   static_cast<std::uint32_t>(warp_ * 2 + half)) +
                static_cast<std::uint32_t>(lane_ % 4 * 4),
            transposed_tile(words::pack(x[0], x[1])));
      }
    }
    __syncwarp();
  }
  /// Calls body(row, column of the block, words) for eight columns of each row.
  template <class Body>
  __device__ __forceinline__ void for_staged(const one_chunk& now, const Body& body) const {
    const std::uint32_t staged = prim::cuda::shared_address(now.values);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = i * 16 + lane_ / 2, eighth = warp_ * 2 + lane_ % 2;
      std::uint32_t of_row[4];
      prim::cuda::load_shared_16(of_row,
                                 staged + value_rows::offset(static_cast<std::uint32_t>(row),
                                                             static_cast<std::uint32_t>(eighth)));
      body(row, eighth * 8, of_row);
    }
  }
  __device__ __forceinline__ void store_rows(const one_chunk& now, std::uint16_t* rows,
                                             std::int64_t place) const {
    rows += args_.row_of_chunk(place) + column_;
    const std::int64_t width = args_.values();
    for_staged(now, [&](int row, int column, const std::uint32_t(&x)[4]) {
      if (column_ + column >= width) return;
      *reinterpret_cast<uint4*>(rows + row * width + column) = make_uint4(x[0], x[1], x[2], x[3]);
    });
  }
  __device__ __forceinline__ void store_d_v(const one_chunk& now, std::int64_t chunk) const {
    auto* const rows = static_cast<Element*>(call_.d_v.data) + column_;
    const int count = count_at(chunk), columns = static_cast<int>(call_.value_dim - column_);
    for_staged(now, [&](int row, int column, const std::uint32_t(&x)[4]) {
      if (row >= count || column >= columns) return;
      Element* const to = rows + shared_.rows_d_v.at(chunk * Shape::tokens + row) + column;
      if (column + 8 <= columns) {
        *reinterpret_cast<uint4*>(to) = make_uint4(x[0], x[1], x[2], x[3]);
      } else {
        for (int j = 0; j < columns - column; ++j) {
          to[j].bits = static_cast<std::uint16_t>(x[j / 2] >> (j % 2 * 16));
        }
      }
    });
  }

  const chunk_back_args& args_;
  const delta_rule_kernel_args& call_;
  memory& shared_;
  const sequence& all_;
  std::int64_t head_, column_;
  int warp_, lane_;
};

template <class Element, class Shape, bool Back, bool Channels>
__global__ void __launch_bounds__(Shape::threads, 2)
    scan_chunks(__grid_constant__ const chunk_back_args args, int tiles) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<scan_memory<Shape, Back, Channels>*>(memory);
  const delta_rule_kernel_args& call = args.call;
  const recurrence::tile_item item(blockIdx.x, tiles, call.value_heads);
  const std::int64_t column = item.tile * Shape::columns, head = item.head;
  const sequence all = sequence_of<device_code>(call, item.sequence);
  if (all.is_rest) {
    if (!Back) return;
    const auto width = min(call.value_dim - column, std::int64_t{Shape::columns});
    return recurrence::sm80::clear_rows(call.d_v, all, head, column, static_cast<int>(width));
  }
  if (!all.has_states) return;

  const warp_columns columns(call, all, head, column);
  recurrence::sm80::warp_state<Shape::keys, 1> state;
  columns.load(state, Back ? call.d_last : initial_states<device_code>(call, all));
  if (all.length > 0) {
    delta_chunk_scan<Element, Shape, Back, Channels>(args, shared, all, head, column)
        .go_through(state);
  }
  if (!Back) return;
  // What lies where a sequence starts from 0 counts for nothing.
  if (all.starts_from_zero) state.load(nullptr, dtype::f32, 0, {});
  columns.store(state, call.d_initial);
}

}  // namespace tessera::kernels::delta_rule::sm80
