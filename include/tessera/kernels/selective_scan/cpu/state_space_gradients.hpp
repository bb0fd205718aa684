// One token of a block of channels, backwards: gradients of its rows, of the states before it, and
// what it adds to gradients that are sums.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/selective_scan/cpu/rows.hpp>
#include <tessera/kernels/selective_scan/cpu/state_space_block.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/activations.hpp>
#include <tessera/prim/cpu/float_carver.hpp>

namespace tessera::kernels::selective_scan::cpu {

/// Sums of a block over its tokens: rows of channels.
struct parameter_sums {
  float* decays = nullptr;  ///< a row for each state; one where the head shares its decay
  float* skip = nullptr;
  float* bias = nullptr;
};

/// What a block adds to the gradients of a token's B and C.
struct group_sums {
  float* b = nullptr;
  float* c = nullptr;
};

template <class Kernel>
class state_space_gradients {
  using block_type = state_space_block<Kernel>;
  using isa_type = typename block_type::isa_type;
  using vec = typename block_type::vec;
  using reg = typename vec::reg;
  static constexpr bool shares_steps = block_type::shares_steps;

 public:
  state_space_gradients(const state_space_kernel_args& args, const block_type& block,
                        prim::float_carver& memory)
      : args_(args), block_(block), width_(block.width()) {
    states_ = memory.take(args.states * width_);
    b_lanes_ = memory.take(args.states * vec::width);
    c_lanes_ = memory.take(args.states * vec::width);
    for (float** row : {&d_out_, &d_x_, &d_z_, &d_dt_}) *row = memory.take(width_);
    chunk_ = take_parameters(args, width_, memory);
  }

  static parameter_sums take_parameters(const state_space_kernel_args& args, std::int64_t width,
                                        prim::float_carver& memory) {
    return {memory.take((shares_steps ? 1 : args.states) * width), memory.take(width),
            memory.take(width)};
  }

  /// Sums begin at 0. Those of a chunk are added to `sums` as a whole: errors do not grow with the
  /// length of a sequence.
  void begin(const parameter_sums& sums) {
    sums_ = sums;
    for (const parameter_sums& each : {sums_, chunk_}) clear(each);
  }
  void end_chunk() {
    add(chunk_.decays, sums_.decays, decay_rows() * width_);
    add(chunk_.skip, sums_.skip, width_);
    add(chunk_.bias, sums_.bias, width_);
    clear(chunk_);
  }

  /// Gradients of the states behind the sequence, and of those in front of it.
  void load_states() { block_.load_states(args_.d_final_state, states_); }
  void store_states() const { block_.store_states(args_.d_initial_state, states_); }

  /// The states before and after the token, whose rows the block has. `d_columns`: the gradients of
  /// the block's columns where a norm has made them; null: they follow from d_out.
  void step_back(std::int64_t entry, std::int64_t token, const float* before, const float* after,
                 const group_sums& groups, const float* d_columns) {
    std::fill(b_lanes_, b_lanes_ + args_.states * vec::width, 0.0f);
    std::fill(c_lanes_, c_lanes_ + args_.states * vec::width, 0.0f);
    const std::int64_t columns = block_.block().columns;
    const bool gated = d_columns == nullptr && args_.z.data != nullptr;
    if (d_columns != nullptr) {
      std::copy(d_columns, d_columns + columns, d_out_);
      std::fill(d_out_ + columns, d_out_ + block_.lanes(), 0.0f);
    } else {
      load_row<isa_type>(args_.d_out, block_.row_at(args_.d_out, entry, token), columns, d_out_);
    }
    if (gated) open_gate();
    const reg of_head = block_.decay_of_head();
    reg head_sum = vec::zero(), step_sum = vec::zero();
    for (std::int64_t at = 0; at < block_.lanes(); at += vec::width) {
      const channel_gradients sums = states_back(at, before, after, of_head);
      finish_channels(at, sums, head_sum, step_sum);
      if (gated) close_gate(at, sums.read);
    }
    finish_steps(entry, token, vec::sum(head_sum), vec::sum(step_sum));
    store_row<isa_type>(args_.d_x, block_.row_at(args_.d_x, entry, token), columns, d_x_);
    if (gated && args_.d_z.data != nullptr) {
      store_row<isa_type>(args_.d_z, block_.row_at(args_.d_z, entry, token), columns, d_z_);
    }
    for (std::int64_t n = 0; n < args_.states; ++n) {
      groups.b[n] = vec::sum(vec::load(b_lanes_ + n * vec::width));
      groups.c[n] = vec::sum(vec::load(c_lanes_ + n * vec::width));
    }
  }

 private:
  /// Sums over the states of a register of channels.
  struct channel_gradients {
    reg read;   ///< h C
    reg moved;  ///< d_h B
    reg decay;  ///< d_h exp(A dt) h_before, times A where each state has its own
  };

  std::int64_t decay_rows() const { return shares_steps ? 1 : args_.states; }

  /// d_y = d_out silu(z), and d_z = d_out silu'(z) y, whose y is known when the states are.
  void open_gate() {
    for (std::int64_t at = 0; at < block_.lanes(); at += vec::width) {
      const prim::silu_value<isa_type> gate = prim::silu_of<isa_type>(vec::load(block_.z() + at));
      const reg d_out = vec::load(d_out_ + at);
      vec::store(d_z_ + at, vec::mul(d_out, gate.slope));
      vec::store(d_out_ + at, vec::mul(d_out, gate.value));
    }
  }
  void close_gate(std::int64_t at, reg read) {
    const reg y = vec::fma(vec::load(block_.skip() + at), vec::load(block_.x() + at), read);
    vec::store(d_z_ + at, vec::mul(vec::load(d_z_ + at), y));
  }

  /// d_h += d_y C for every state, then d_h exp(A dt) is the gradient of the state before.
  TESSERA_INLINE channel_gradients states_back(std::int64_t at, const float* before,
                                               const float* after, reg of_head) {
    const reg d_y = vec::load(d_out_ + at), dt = vec::load(block_.dt() + at);
    const reg moved = vec::mul(dt, vec::load(block_.x() + at));
    channel_gradients sums{vec::zero(), vec::zero(), vec::zero()};
    for (std::int64_t n = 0; n < args_.states; ++n) {
      const reg b = vec::broadcast(block_.b()[n]), c = vec::broadcast(block_.c()[n]);
      const reg h = vec::load(after + n * width_ + at);
      float* const d_h_row = states_ + n * width_ + at;
      const reg d_h = vec::fma(d_y, c, vec::load(d_h_row));
      add_product(c_lanes_ + n * vec::width, d_y, h);
      add_product(b_lanes_ + n * vec::width, d_h, moved);
      sums.read = vec::fma(h, c, sums.read);
      sums.moved = vec::fma(d_h, b, sums.moved);
      const reg back = vec::mul(d_h, block_.decay_at(n, at, dt, of_head));
      vec::store(d_h_row, back);
      const reg of_exponent = vec::mul(back, vec::load(before + n * width_ + at));
      if constexpr (shares_steps) {
        sums.decay = vec::add(sums.decay, of_exponent);
      } else {
        sums.decay = vec::fma(block_.decay_rate(n, at), of_exponent, sums.decay);
        add_product(chunk_.decays + n * width_ + at, dt, of_exponent);
      }
    }
    return sums;
  }

  /// d_x, and the gradients of steps: of each channel, or what the head adds up.
  TESSERA_INLINE void finish_channels(std::int64_t at, const channel_gradients& sums, reg& head_sum,
                                      reg& step_sum) {
    const reg x = vec::load(block_.x() + at), dt = vec::load(block_.dt() + at);
    const reg d_y = vec::load(d_out_ + at);
    vec::store(d_x_ + at, vec::fma(dt, sums.moved, vec::mul(d_y, vec::load(block_.skip() + at))));
    add_product(chunk_.skip + at, d_y, x);
    if constexpr (shares_steps) {
      head_sum = vec::add(head_sum, sums.decay);
      step_sum = vec::fma(x, sums.moved, step_sum);
      add_product(chunk_.decays + at, dt, sums.decay);
    } else {
      const reg d_step = vec::fma(x, sums.moved, sums.decay);
      const reg d_raw = vec::mul(d_step, block_.step_slope(at));
      vec::store(d_dt_ + at, d_raw);
      vec::store(chunk_.bias + at, vec::add(vec::load(chunk_.bias + at), d_raw));
    }
  }

  void finish_steps(std::int64_t entry, std::int64_t token, float head_sum, float step_sum) {
    if constexpr (shares_steps) {
      const float d_step = block_.head_decay_rate() * head_sum + step_sum;
      d_dt_[0] = d_step * vec::first(block_.step_slope(0));
      chunk_.bias[0] += d_dt_[0];
      store_row<isa_type>(args_.d_dt, offset_at(args_.d_dt, entry, token, block_.block().head), 1,
                          d_dt_);
    } else {
      store_row<isa_type>(args_.d_dt, block_.row_at(args_.d_dt, entry, token),
                          block_.block().columns, d_dt_);
    }
  }

  static TESSERA_INLINE void add_product(float* sum, reg a, reg b) {
    vec::store(sum, vec::fma(a, b, vec::load(sum)));
  }
  static void add(const float* terms, float* sums, std::int64_t count) {
    for (std::int64_t at = 0; at < count; at += vec::width) {
      vec::store(sums + at, vec::add(vec::load(sums + at), vec::load(terms + at)));
    }
  }
  void clear(const parameter_sums& sums) const {
    std::fill(sums.decays, sums.decays + decay_rows() * width_, 0.0f);
    std::fill(sums.skip, sums.skip + width_, 0.0f);
    std::fill(sums.bias, sums.bias + width_, 0.0f);
  }

  const state_space_kernel_args& args_;
  const block_type& block_;
  std::int64_t width_;
  parameter_sums sums_{}, chunk_{};
  float *states_ = nullptr, *b_lanes_ = nullptr, *c_lanes_ = nullptr;
  float *d_out_ = nullptr, *d_x_ = nullptr, *d_z_ = nullptr, *d_dt_ = nullptr;
};

}  // namespace tessera::kernels::selective_scan::cpu
