// Backward: a block goes through the sequences and value heads of its own, forward and back again
// (recurrence/sm80/replay.hpp), and what the tokens of a leaf get is summed over tiles of columns
// in shared memory. Sums over columns stay in the block, so that they have the same bits every
// time.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/delta_rule/sm80/backward_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/forward.hpp>
#include <tessera/kernels/delta_rule/sm80/step_back.hpp>
#include <tessera/kernels/delta_rule/sm80/token_gradient.hpp>
#include <tessera/kernels/recurrence/sm80/replay.hpp>
#include <tessera/kernels/recurrence/sm80/state_tile.hpp>

namespace tessera::kernels::delta_rule::sm80 {

using recurrence::sm80::block_states;
using recurrence::sm80::gather_tile;
using recurrence::sm80::put_columns;
using recurrence::sm80::replay;
using recurrence::sm80::scatter_tile;
using recurrence::sm80::take_columns;

/// Shared memory of a block.
template <class Shape>
struct backward_tokens {
  static constexpr int count = tokens_at_a_time<Shape>;
  token_memory<Shape> tokens;
  recurrence::sm80::leaf_rows<Shape, token_rows, count> d_rows;
  float missing[count][Shape::columns], held[count][Shape::columns], d_out[count][Shape::columns];
  float warp_beta[Shape::warps];
  float d_beta[count];
};

/// The steps of one sequence and value head; see recurrence/sm80/replay.hpp.
template <class Element, class Shape, bool LowRank>
class delta_steps {
 public:
  __device__ delta_steps(const backward_args& args, backward_tokens<Shape>& memory,
                         const sequence& all, std::int64_t head)
      : args_(args),
        call_(args.call),
        memory_(memory),
        all_(all),
        head_(head),
        mine_(thread_place<Shape>::here()),
        reader_(args.call, all, head),
        gradients_(args, all, reader_, head) {}

  __device__ void load_states(std::int64_t column, float* state, float* gradient) const {
    const auto initial = initial_states<device_code>(call_, all_);
    gather_tile<Shape>(initial.data, initial.type,
                       place_of(initial, call_, all_.slot, head_, column), state);
    gather_tile<Shape>(call_.d_last.data, call_.d_last.type,
                       place_of(call_.d_last, call_, all_.slot, head_, column), gradient);
  }
  /// What lies where a sequence starts from 0 counts for nothing.
  __device__ void store_gradient(std::int64_t column, const float* gradient) const {
    const auto& to = call_.d_initial;
    if (to.data == nullptr) return;
    scatter_tile<Shape>(gradient, !all_.starts_from_zero, to.data, to.type,
                        place_of(to, call_, all_.slot, head_, column));
  }

  __device__ void load_rows(std::int64_t first, int count, bool returns) const {
    reader_.load_rows(memory_.tokens, first, count);
    if (!returns) return;
    memory_.d_rows.clear();
    if (threadIdx.x < backward_tokens<Shape>::count) memory_.d_beta[threadIdx.x] = 0.0f;
  }
  __device__ void load_columns(std::int64_t first, int count, std::int64_t column,
                               bool returns) const {
    reader_.load_columns(memory_.tokens.value, call_.v, first, count, column, call_.activates);
    if (returns) reader_.load_columns(memory_.d_out, call_.d_out, first, count, column, false);
  }

  __device__ __forceinline__ bool begins(int i, state_tile<Shape>& state) const {
    const step_kind kind = memory_.tokens.kind[i];
    if (kind == step_kind::starts_anew) state.clear();
    return kind != step_kind::padding;
  }
  __device__ __forceinline__ void step(int i, state_tile<Shape>& state) const {
    column_values<Shape> held, missing, answer;
    step_state<Shape, LowRank>(state, memory_.tokens.rows_of(i), mine_, memory_.tokens.value[i],
                               memory_.tokens.beta[i], held, missing, answer);
    put_columns<Shape>(memory_.missing[i], mine_, missing);
    put_columns<Shape>(memory_.held[i], mine_, held);
  }

  __device__ __forceinline__ void step_back(int i, std::int64_t first, std::int64_t column,
                                            const float* before,
                                            state_tile<Shape>& gradient) const {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const step_kind kind = memory_.tokens.kind[i];
    if (kind == step_kind::padding) return store_values(first + i, column, {});
    known_columns<Shape> known;
    take_columns<Shape>(known.missing, memory_.missing[i], mine_);
    take_columns<Shape>(known.held, memory_.held[i], mine_);
    take_columns<Shape>(known.d_out, memory_.d_out[i], mine_);
    column_values<Shape> d_values;
    float d_beta = sm80::step_back<Shape, LowRank>(before, memory_.tokens.rows_of(i), mine_, known,
                                                   memory_.tokens.beta[i], gradient,
                                                   memory_.d_rows.of_warp(), d_values);
#pragma unroll
    for (int other = Shape::lanes; other < 32; other *= 2) {
      d_beta += __shfl_xor_sync(prim::cuda::all_lanes, d_beta, other);
    }
    if (threadIdx.x % 32 == 0) memory_.warp_beta[warp] = d_beta;
    activate_back(first + i, column, d_values);
    store_values(first + i, column, d_values);
    if (kind == step_kind::starts_anew) gradient.clear();
    __syncthreads();
    add_warps(i);
    __syncthreads();
  }

  /// A warp for each token; then the sums of the gates, a thread for each channel.
  __device__ void store_leaf(std::int64_t first, int count) const {
    for (int i = static_cast<int>(threadIdx.x) / 32; i < count; i += Shape::warps) {
      const std::int64_t token = all_.token(first + i);
      if (memory_.tokens.kind[i] == step_kind::padding) {
        gradients_.clear(token);
      } else {
        gradients_.store(token, memory_.tokens.rows_of(i), memory_.d_rows.of_token(i),
                         memory_.d_beta[i]);
      }
    }
    if (args_.gate_sums == nullptr) return;
    __syncthreads();
    const int channels = args_.gate_channels();
    for (int c = static_cast<int>(threadIdx.x); c < channels; c += Shape::threads) {
      for (int i = 0; i < count; ++i) {
        if (memory_.tokens.kind[i] == step_kind::padding) continue;
        sums()[c] += static_cast<double>(memory_.d_rows.of_token(i).decay[c]);
        sums()[channels + c] += static_cast<double>(memory_.d_rows.of_token(i).read[c]);
      }
    }
  }

  /// No sums yet.
  __device__ void clear_sums() const {
    if (args_.gate_sums == nullptr) return;
    for (int c = static_cast<int>(threadIdx.x); c < args_.gate_channels(); c += Shape::threads) {
      sums()[c] = sums()[args_.gate_channels() + c] = 0.0;
    }
  }
  /// Zeros for tokens that belong to no sequence.
  __device__ void clear_tokens() const {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    for (std::int64_t step = warp; step < all_.length; step += Shape::warps) {
      gradients_.clear(all_.token(step));
    }
    for (std::int64_t column = 0; column < call_.value_dim; column += Shape::columns) {
      for (std::int64_t step = 0; step < all_.length; ++step) store_values(step, column, {});
    }
  }

 private:
  /// Of dt_bias, and behind them of A_log.
  __device__ double* sums() const {
    return args_.gate_sums + (all_.number * call_.value_heads + head_) * 2 * args_.gate_channels();
  }

  /// The rows and gradients of beta of all warps to those of a token.
  __device__ __forceinline__ void add_warps(int i) const {
    memory_.d_rows.template add_warps<token_rows::count - (LowRank ? 0 : 1)>(i);
    if (threadIdx.x != 0) return;
#pragma unroll
    for (int warp = 0; warp < Shape::warps; ++warp) memory_.d_beta[i] += memory_.warp_beta[warp];
  }

  /// Through the activation of the values.
  __device__ __forceinline__ void activate_back(std::int64_t step, std::int64_t column,
                                                column_values<Shape>& d_values) const {
    if (!call_.activates || !mine_.leads()) return;
#pragma unroll
    for (int j = 0; j < Shape::columns_of_thread; ++j) {
      const std::int64_t at = column + mine_.column + j;
      if (at >= call_.value_dim) continue;
      d_values[j] *= slope_of_silu(reader_.element_at(call_.v, all_.token(step), head_, at));
    }
  }
  __device__ __forceinline__ void store_values(std::int64_t step, std::int64_t column,
                                               const column_values<Shape>& d_values) const {
    store_columns<Element, Shape>(columns_at<Element>(call_.d_v, all_, step, head_, column),
                                  call_.value_dim - column, mine_, d_values);
  }

  const backward_args& args_;
  const delta_rule_kernel_args& call_;
  backward_tokens<Shape>& memory_;
  const sequence& all_;
  std::int64_t head_;
  thread_place<Shape> mine_;
  token_reader<Element, Shape> reader_;
  token_gradients<Element, Shape> gradients_;
};

template <class Element, class Shape, bool LowRank>
__global__ void __launch_bounds__(Shape::threads, 2)
    step_back_through(__grid_constant__ const backward_args args) {
  extern __shared__ __align__(16) unsigned char shared[];
  auto& memory = *reinterpret_cast<backward_tokens<Shape>*>(shared);
  const block_states states{args.cut, args.states + blockIdx.x * args.cut.floats_of_block()};
  const std::int64_t items = sequences_with_rest(args.call) * args.call.value_heads;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const sequence all = sequence_of<device_code>(args.call, item / args.call.value_heads);
    const delta_steps<Element, Shape, LowRank> steps(args, memory, all,
                                                     item % args.call.value_heads);
    if (all.is_rest) {
      steps.clear_tokens();
    } else if (all.has_states) {
      steps.clear_sums();
      replay<Shape, delta_steps<Element, Shape, LowRank>>(states, all.length, steps).run();
    }
  }
}

/// Gradients of A_log and dt_bias: sums over sequences, of A_log over channels too. A block for
/// each value head. A sequence of a pool without tokens has no sums.
template <class Element>
__global__ void __launch_bounds__(1024) add_gate_sums(__grid_constant__ const backward_args args) {
  const delta_rule_kernel_args& call = args.call;
  __shared__ double of_rate[1024];
  const std::int64_t head = blockIdx.x;
  const int channels = args.gate_channels(), c = static_cast<int>(threadIdx.x);
  double bias = 0.0, rate = 0.0;
  for (std::int64_t n = 0; c < channels && n < call.sequences; ++n) {
    if (!sequence_of<device_code>(call, n).has_states) continue;
    const double* const sums = args.gate_sums + (n * call.value_heads + head) * 2 * channels;
    bias += sums[c];
    rate += sums[channels + c];
  }
  of_rate[c] = rate;
  if (c < channels && call.d_bias != nullptr) {
    call.d_bias[head * call.d_bias_head + c] = static_cast<float>(bias);
  }
  __syncthreads();
  if (c != 0 || call.d_a_log == nullptr) return;
  double sum = 0.0;
  for (int i = 0; i < channels; ++i) sum += of_rate[i];
  call.d_a_log[head * call.d_a_log_head] = static_cast<float>(sum);
}

}  // namespace tessera::kernels::delta_rule::sm80
