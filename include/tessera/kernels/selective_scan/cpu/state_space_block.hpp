// What forward and backward state-space kernels share: how a launch is cut into blocks of channels,
// a block's parameters, the rows of one of its tokens, and its states.
//
// States of a block are rows of channels, one row a state: lane i of every register is channel i.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/selective_scan/config.hpp>
#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/selective_scan/cpu/rows.hpp>
#include <tessera/prim/cpu/activations.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::selective_scan::cpu {

/// Channels of a block: columns [first, first + columns) of a head, for one sequence.
struct channel_block {
  std::int64_t sequence = 0;
  std::int64_t states_entry = 0;  ///< its entry in tensors of states, or `no_states`
  std::int64_t head = 0;
  std::int64_t first = 0;
  std::int64_t columns = 0;
  bool is_last = false;  ///< of a work item: the block behind it may be another thread's
};

/// The work items of a launch. Channels of a head that shares its steps stay together.
template <class Kernel>
struct state_space_cut {
  using isa_type = typename isa::of<Kernel::config.target>::type;
  static constexpr bool shares_steps = Kernel::config.recurrence == scan_recurrence::state_space_v2;
  static constexpr std::int64_t most_columns = 64;

  const state_space_kernel_args& args;

  std::int64_t block_columns() const {
    return shares_steps ? args.columns : std::min(args.columns, most_columns);
  }
  /// A head without columns has a block too: its gradients are 0.
  std::int64_t blocks_per_head() const {
    return args.columns == 0 ? 1 : (args.columns - 1) / block_columns() + 1;
  }
  std::int64_t blocks() const { return args.heads * blocks_per_head(); }
  /// Floats of a row of a block.
  std::int64_t width() const {
    return padded<isa_type>(std::max<std::int64_t>(block_columns(), 1));
  }

  channel_block block_at(std::int64_t sequence, std::int64_t block) const {
    const std::int64_t first = block % blocks_per_head() * block_columns();
    return {.sequence = sequence,
            .states_entry = states_entry<isa_type>(args.sequences, sequence),
            .head = block / blocks_per_head(),
            .first = first,
            .columns = std::min(block_columns(), args.columns - first)};
  }
};

/// A block's parameters and the rows of one token.
template <class Kernel>
class state_space_block {
 public:
  using cut_type = state_space_cut<Kernel>;
  using isa_type = typename cut_type::isa_type;
  using vec = prim::simd<isa_type>;
  using reg = typename vec::reg;
  static constexpr bool shares_steps = cut_type::shares_steps;

  state_space_block(const state_space_kernel_args& args, prim::float_carver& memory)
      : args_(args), width_(cut_type{args}.width()) {
    if (!shares_steps) decays_ = memory.take(args.states * width_);
    for (float** row : {&skip_, &bias_, &x_, &dt_, &raw_dt_, &z_}) *row = memory.take(width_);
    b_ = memory.take(padded<isa_type>(args.states));
    c_ = memory.take(padded<isa_type>(args.states));
  }

  /// Takes the block's parameters over; where states stay in place, without decays of lanes.
  void enter(const channel_block& block, bool in_place = false) {
    block_ = block;
    lanes_ = padded<isa_type>(block.columns);
    load_parameter(args_.D, skip_);
    load_parameter(args_.dt_bias, bias_);
    if (shares_steps) {
      head_decay_ = element_at<isa_type>(args_.A, block.head * args_.A.head);
      return;
    }
    for (std::int64_t n = 0; !in_place && n < args_.states; ++n) {
      const std::int64_t at =
          block.head * args_.A.head + block.first * args_.A.column + n * args_.A.state;
      gather_row<isa_type>(args_.A, at, args_.A.column, block.columns, decays_ + n * width_);
    }
  }

  /// Loads x, B and C of a token and makes its steps.
  void load_token(std::int64_t entry, std::int64_t token) {
    const std::int64_t group = block_.head / args_.heads_per_group;
    load_row<isa_type>(args_.x, row_at(args_.x, entry, token), block_.columns, x_);
    load_row<isa_type>(args_.B, offset_at(args_.B, entry, token, group), args_.states, b_);
    load_row<isa_type>(args_.C, offset_at(args_.C, entry, token, group), args_.states, c_);
    if (shares_steps) {
      const float raw =
          element_at<isa_type>(args_.dt, offset_at(args_.dt, entry, token, block_.head));
      std::fill(raw_dt_, raw_dt_ + width_, raw + bias_[0]);
      const reg step = step_of(vec::broadcast(raw_dt_[0]));
      for (std::int64_t at = 0; at < lanes_; at += vec::width) vec::store(dt_ + at, step);
      return;
    }
    load_row<isa_type>(args_.dt, row_at(args_.dt, entry, token), block_.columns, raw_dt_);
    for (std::int64_t at = 0; at < lanes_; at += vec::width) {
      const reg raw = vec::add(vec::load(raw_dt_ + at), vec::load(bias_ + at));
      vec::store(raw_dt_ + at, raw);
      vec::store(dt_ + at, step_of(raw));
    }
  }
  /// The gate of a token; only where there is one.
  void load_gate(std::int64_t entry, std::int64_t token) {
    load_row<isa_type>(args_.z, row_at(args_.z, entry, token), block_.columns, z_);
  }

  /// exp(A dt) of the head; where each channel and state has its own, unused.
  reg decay_of_head() const {
    return shares_steps ? vec::broadcast(prim::decay_of<isa_type>(head_decay_ * dt_[0]))
                        : vec::zero();
  }
  /// exp(A dt) of a register of channels, `of_head` being the head's.
  TESSERA_INLINE reg decay_at(std::int64_t n, std::int64_t at, reg dt, reg of_head) const {
    if constexpr (shares_steps) {
      return of_head;
    } else {
      return prim::decay_of<isa_type>(vec::mul(decay_rate(n, at), dt));
    }
  }
  /// A of a register of channels; of the head.
  TESSERA_INLINE reg decay_rate(std::int64_t n, std::int64_t at) const {
    return vec::load(decays_ + n * width_ + at);
  }
  float head_decay_rate() const { return head_decay_; }

  /// How a step changes with dt: 0 beyond its bounds.
  reg step_slope(std::int64_t at) const {
    const reg raw = vec::load(raw_dt_ + at), zero = vec::zero();
    const reg step = args_.dt_softplus ? prim::softplus_of<isa_type>(raw) : raw;
    const reg slope = args_.dt_softplus ? prim::sigmoid_of<isa_type>(raw) : vec::broadcast(1.0f);
    const reg above = vec::select_below(step, vec::broadcast(args_.dt_min), zero, slope);
    return vec::select_below(vec::broadcast(args_.dt_max), step, zero, above);
  }

  /// h = exp(A dt) h + dt x B for every state; `after` may be `before`.
  void update(const float* before, float* after) const {
    const reg of_head = decay_of_head();
    for (std::int64_t at = 0; at < lanes_; at += vec::width) {
      const reg dt = vec::load(dt_ + at);
      const reg moved = vec::mul(dt, vec::load(x_ + at));
      for (std::int64_t n = 0; n < args_.states; ++n) {
        const reg h = vec::load(before + n * width_ + at);
        const reg decayed = vec::mul(decay_at(n, at, dt, of_head), h);
        vec::store(after + n * width_ + at, vec::fma(moved, vec::broadcast(b_[n]), decayed));
      }
    }
  }

  /// y = sum over states of h C, and D x.
  void read(const float* states, float* y) const {
    for (std::int64_t at = 0; at < lanes_; at += vec::width) {
      reg sum = vec::zero();
      for (std::int64_t n = 0; n < args_.states; ++n) {
        sum = vec::fma(vec::load(states + n * width_ + at), vec::broadcast(c_[n]), sum);
      }
      vec::store(y + at, vec::fma(vec::load(skip_ + at), vec::load(x_ + at), sum));
    }
  }

  /// Whether a token may step through states where they lie, and decays too.
  bool is_in_place(const channel_block& block) const {
    const auto lies_in_rows = [](const scan_tensor& tensor) {
      return tensor.data != nullptr && tensor.type == dtype::f32 && tensor.state == 1;
    };
    return args_.states % vec::width == 0 && block.states_entry != no_states &&
           lies_in_rows(args_.initial_state) && lies_in_rows(args_.final_state) &&
           (shares_steps || lies_in_rows(args_.A));
  }
  /// `update` and `read` of a token alone, from memory to memory: column by column, as states lie.
  void step_in_place(float* y) const {
    const std::int64_t registers = args_.states / vec::width;
    if constexpr (shares_steps) {
      if (registers == 1) return step_columns<1>(y);
      if (registers == 2) return step_columns<2>(y);
    } else {
      if (registers == 1) return step_groups<1>(y);
      if (registers == 2) return step_groups<2>(y);
    }
    step_columns<0>(y);
  }

  /// The states that the block's sequence starts from.
  void load_states(const scan_tensor& from, float* states) const {
    std::fill(states, states + args_.states * width_, 0.0f);
    if (from.data == nullptr || block_.states_entry == no_states) return;
    for (std::int64_t column = 0; column < block_.columns; ++column) {
      const std::int64_t offset = state_at(from, column);
      for (std::int64_t n = 0; n < args_.states; ++n) {
        states[n * width_ + column] = element_at<isa_type>(from, offset + n * from.state);
      }
    }
  }
  void store_states(const scan_tensor& to, const float* states) const {
    if (to.data == nullptr || block_.states_entry == no_states) return;
    for (std::int64_t column = 0; column < block_.columns; ++column) {
      float* const row = static_cast<float*>(to.data) + state_at(to, column);
      for (std::int64_t n = 0; n < args_.states; ++n) {
        row[n * to.state] = states[n * width_ + column];
      }
    }
  }

  /// The block's columns of a token in a tensor shaped like x.
  std::int64_t row_at(const scan_tensor& tensor, std::int64_t entry, std::int64_t token) const {
    return offset_at(tensor, entry, token, block_.head) + block_.first;
  }
  /// States of one column in a tensor shaped like initial_state.
  std::int64_t state_at(const scan_tensor& tensor, std::int64_t column) const {
    return block_.states_entry * tensor.entry + block_.head * tensor.head +
           (block_.first + column) * tensor.column;
  }

  const channel_block& block() const { return block_; }
  /// Floats from one row to the next, and those of a row in use.
  std::int64_t width() const { return width_; }
  std::int64_t lanes() const { return lanes_; }
  // Rows of the token.
  const float* x() const { return x_; }
  const float* dt() const { return dt_; }
  const float* z() const { return z_; }
  const float* b() const { return b_; }
  const float* c() const { return c_; }
  const float* skip() const { return skip_; }

 private:
  /// `step_in_place` of columns of so many registers of states (0: of any number).
  template <int Registers>
  void step_columns(float* y) const {
    const reg of_head = decay_of_head();
    const float* before = first_place().before;
    float* after = first_place().after;
    [[maybe_unused]] const float* rates = first_place().rates;
    for (std::int64_t at = 0; at < lanes_; at += vec::width) {
      float read[vec::width * vec::width];  // of each column, to be summed
      const std::int64_t count = std::min<std::int64_t>(vec::width, block_.columns - at);
      for (std::int64_t i = 0; i < count; ++i) {
        const reg dt = vec::broadcast(dt_[at + i]);
        const reg moved = vec::mul(dt, vec::broadcast(x_[at + i]));
        reg sum = vec::zero();
        const auto step = [&](std::int64_t n) {
          reg decay = of_head;
          if constexpr (!shares_steps) {
            decay = prim::decay_of<isa_type>(vec::mul(vec::load(rates + n), dt));
          }
          const reg h = vec::fma(moved, vec::load(b_ + n), vec::mul(decay, vec::load(before + n)));
          vec::store(after + n, h);
          sum = vec::fma(h, vec::load(c_ + n), sum);
        };
        if constexpr (Registers > 0) {
          TESSERA_UNROLL
          for (int n = 0; n < Registers; ++n) step(n * vec::width);
        } else {
          for (std::int64_t n = 0; n < args_.states; n += vec::width) step(n);
        }
        vec::store(read + i * vec::width, sum);
        before += args_.initial_state.column;
        after += args_.final_state.column;
        if constexpr (!shares_steps) rates += args_.A.column;
      }
      reg sums[vec::width];
      for (int i = 0; i < vec::width; ++i) {
        sums[i] = i < count ? vec::load(read + i * vec::width) : vec::zero();
      }
      vec::store(y + at, vec::fma(vec::load(skip_ + at), vec::load(x_ + at), vec::sums(sums)));
    }
  }

  /// Where a lone token finds a column's states and rates, and where it leaves the states.
  struct column_place {
    const float* before;
    float* after;
    const float* rates;
  };
  column_place first_place() const {
    const auto* rates = static_cast<const float*>(args_.A.data) + block_.head * args_.A.head;
    return {static_cast<const float*>(args_.initial_state.data) + state_at(args_.initial_state, 0),
            static_cast<float*>(args_.final_state.data) + state_at(args_.final_state, 0),
            rates + (shares_steps ? 0 : block_.first * args_.A.column)};
  }

  /// `step_in_place` of columns of so many registers of states that have their own decays: those of
  /// four registers are computed side by side.
  template <int Registers>
  void step_groups(float* y) const {
    constexpr int group = 4 / Registers;
    column_place place = first_place();
    for (std::int64_t at = 0; at < lanes_; at += vec::width) {
      const auto count = static_cast<int>(std::min<std::int64_t>(vec::width, block_.columns - at));
      reg sums[vec::width];  // of each column
      int i = 0;
      for (; i + group <= count; i += group) {
        step_group<Registers, group>(place, at + i, sums + i);
      }
      for (; i < count; ++i) step_group<Registers, 1>(place, at + i, sums + i);
      for (; i < vec::width; ++i) sums[i] = vec::zero();
      vec::store(y + at, vec::fma(vec::load(skip_ + at), vec::load(x_ + at), vec::sums(sums)));
    }
  }

  /// Columns [column, column + Columns) of the block: their states step, and what is read of each
  /// is added up in `sums` but for the lanes of a register.
  template <int Registers, int Columns>
  TESSERA_INLINE void step_group(column_place& place, std::int64_t column, reg* sums) const {
    ask_for_columns<Registers, Columns>(place, column);
    reg h[Columns * Registers];  // decays, then states
    const auto each = [](const auto& step) {
      TESSERA_UNROLL
      for (int at = 0; at < Columns * Registers; ++at) {
        step(at, at / Registers, at % Registers * vec::width);
      }
    };
    each([&](int at, int i, int n) {
      h[at] = vec::mul(vec::load(place.rates + i * args_.A.column + n),
                       vec::broadcast(dt_[column + i]));
    });
    prim::to_decays<isa_type>(h);
    each([&](int at, int i, int n) {
      const reg found = vec::load(place.before + i * args_.initial_state.column + n);
      h[at] = vec::fma(vec::broadcast(dt_[column + i] * x_[column + i]), vec::load(b_ + n),
                       vec::mul(h[at], found));
    });
    each([&](int at, int i, int n) {
      vec::store(place.after + i * args_.final_state.column + n, h[at]);
      const reg c = vec::load(c_ + n);
      sums[i] = n == 0 ? vec::mul(h[at], c) : vec::fma(h[at], c, sums[i]);
    });
    place.before += Columns * args_.initial_state.column;
    place.after += Columns * args_.final_state.column;
    place.rates += Columns * args_.A.column;
  }

  /// Columns of the head that lie a block ahead, where states stay in place: decays take as long as
  /// memory, which else waits for them; what another thread may be at stays alone. Between two
  /// memories the processor's own requests are best.
  template <int Registers, int Columns>
  TESSERA_INLINE void ask_for_columns(const column_place& place, std::int64_t column) const {
    constexpr std::int64_t ahead = cut_type::most_columns;
    constexpr int floats_of_line = 16;
    if (block_.is_last || place.before != place.after) return;
    if (block_.first + column + ahead + Columns > args_.columns) return;
    TESSERA_UNROLL
    for (int i = 0; i < Columns; ++i) {
      TESSERA_UNROLL
      for (int n = 0; n < Registers * vec::width; n += floats_of_line) {
        TESSERA_PREFETCH(place.rates + (ahead + i) * args_.A.column + n);
        TESSERA_PREFETCH(place.before + (ahead + i) * args_.initial_state.column + n);
      }
    }
  }

  /// A parameter of channels, or the one of the head (stride 0) in every lane.
  void load_parameter(const scan_tensor& tensor, float* row) const {
    if (tensor.data == nullptr) {
      std::fill(row, row + width_, 0.0f);
    } else if (shares_steps && tensor.column == 0) {
      std::fill(row, row + width_, element_at<isa_type>(tensor, block_.head * tensor.head));
    } else {
      gather_row<isa_type>(tensor, block_.head * tensor.head + block_.first * tensor.column,
                           tensor.column, block_.columns, row);
    }
  }

  reg step_of(reg raw) const {
    const reg step = args_.dt_softplus ? prim::softplus_of<isa_type>(raw) : raw;
    const reg least = vec::max(vec::broadcast(args_.dt_min), step);
    const reg zero = vec::zero();
    return vec::sub(zero, vec::max(vec::broadcast(-args_.dt_max), vec::sub(zero, least)));
  }

  const state_space_kernel_args& args_;
  channel_block block_{};
  std::int64_t width_, lanes_ = 0;
  float head_decay_ = 0;
  float* decays_ = nullptr;
  float *skip_ = nullptr, *bias_ = nullptr;
  float *x_ = nullptr, *dt_ = nullptr, *raw_dt_ = nullptr, *z_ = nullptr, *b_ = nullptr,
        *c_ = nullptr;
};

}  // namespace tessera::kernels::selective_scan::cpu
