// Linear attention with decay by its definition, in double, token by token:
//
//   S_t = (a_t b_t^T) S_{t-1} + k_t v_t^T     a_t = exp(g_t + gk_t + g_gamma), b_t = exp(gv_t)
//   out_t = scale S_t^T q_t, with a bonus u: scale (S_{t-1} + (u k_t) v_t^T)^T q_t
//
// Beside every sum stands the sum of its terms' magnitudes, which the error of a kernel is relative
// to.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/spec/tensor_view.hpp>

#include "elements.hpp"

namespace tessera::reference {

/// The tensors of a call of any operation of the family.
struct scan_call {
  tensor_view q{}, k{}, v{}, g{}, gk{}, gv{}, g_gamma{}, u{}, initial_state{}, cu_seqlens{};
  double scale = 1;
  bool reverse = false;
  bool raw_decay = false;  ///< the log decay is -exp(gk)

  std::int64_t heads() const { return q.extent[2]; }
  std::int64_t keys() const { return q.extent[3]; }
  std::int64_t values() const { return v.extent[3]; }
  std::int64_t tokens() const { return q.extent[1]; }
  std::int64_t sequences() const {
    return cu_seqlens.present() ? cu_seqlens.extent[0] - 1 : q.extent[0];
  }
  /// The head of k and v that head `h` reads.
  std::int64_t kv_head(std::int64_t h) const { return h / (heads() / k.extent[2]); }
};

/// Numbers, and the sums of magnitudes that they come from.
struct sized_values {
  std::vector<double> values, sizes;

  sized_values() = default;
  explicit sized_values(std::int64_t count)
      : values(static_cast<std::size_t>(count), 0.0), sizes(values) {}
  void add(std::int64_t at, double term, double size) {
    values[static_cast<std::size_t>(at)] += term;
    sizes[static_cast<std::size_t>(at)] += size;
  }
  void add(std::int64_t at, double term) { add(at, term, std::fabs(term)); }
  void multiply(std::int64_t at, double factor) {
    values[static_cast<std::size_t>(at)] *= factor;
    sizes[static_cast<std::size_t>(at)] *= std::fabs(factor);
  }
  double value(std::int64_t at) const { return values[static_cast<std::size_t>(at)]; }
  double size(std::int64_t at) const { return sizes[static_cast<std::size_t>(at)]; }
};

struct scan_outputs {
  sized_values out, final_state;
  double largest_exponent = 0;  ///< of the finite log decays of a token
};

/// The factors of the rows and columns of a state at a token.
struct scan_decays {
  std::vector<double> keys, values;

  double of(std::int64_t key, std::int64_t value) const {
    return keys[static_cast<std::size_t>(key)] * values[static_cast<std::size_t>(value)];
  }
};

/// A sequence and head: where its tokens are, in their order, and what a token's numbers are.
class scan_walk {
 public:
  scan_walk(const scan_call& call, std::int64_t sequence, std::int64_t head)
      : call_(call), sequence_(sequence), head_(head), entry_(sequence), end_(call.tokens()) {
    if (!call.cu_seqlens.present()) return;
    entry_ = 0;
    begin_ = static_cast<std::int64_t>(at(call.cu_seqlens, sequence));
    end_ = static_cast<std::int64_t>(at(call.cu_seqlens, sequence + 1));
  }

  std::int64_t length() const { return end_ - begin_; }
  std::int64_t token(std::int64_t step) const {
    return call_.reverse ? end_ - 1 - step : begin_ + step;
  }
  /// Element c of the row of a token in a tensor with so many heads and columns, row-major.
  std::int64_t place(std::int64_t step, std::int64_t heads, std::int64_t h, std::int64_t columns,
                     std::int64_t c) const {
    return ((entry_ * call_.tokens() + token(step)) * heads + h) * columns + c;
  }
  std::int64_t state_place(std::int64_t key, std::int64_t value) const {
    return ((sequence_ * call_.heads() + head_) * call_.keys() + key) * call_.values() + value;
  }

  double q(std::int64_t step, std::int64_t c) const { return row(call_.q, step, head_, c); }
  double k(std::int64_t step, std::int64_t c) const {
    return row(call_.k, step, call_.kv_head(head_), c);
  }
  double v(std::int64_t step, std::int64_t c) const {
    return row(call_.v, step, call_.kv_head(head_), c);
  }
  double row(const tensor_view& of, std::int64_t step, std::int64_t h, std::int64_t c) const {
    return at(of, entry_, token(step), h, c);
  }
  double initial(std::int64_t key, std::int64_t value) const {
    return call_.initial_state.present() ? at(call_.initial_state, sequence_, head_, key, value)
                                         : 0.0;
  }

  double key_exponent(std::int64_t step, std::int64_t c) const {
    double sum = 0;
    if (call_.g.present()) sum += at(call_.g, entry_, token(step), head_);
    if (call_.gk.present()) {
      const double gk = row(call_.gk, step, head_, c);
      sum += call_.raw_decay ? -std::exp(gk) : gk;
    }
    if (call_.g_gamma.present()) {
      sum +=
          call_.g_gamma.rank == 2 ? at(call_.g_gamma, sequence_, head_) : at(call_.g_gamma, head_);
    }
    return sum;
  }
  double value_exponent(std::int64_t step, std::int64_t c) const {
    return call_.gv.present() ? row(call_.gv, step, head_, c) : 0.0;
  }

  scan_decays decays(std::int64_t step) const {
    scan_decays all;
    for (std::int64_t c = 0; c < call_.keys(); ++c) {
      all.keys.push_back(std::exp(key_exponent(step, c)));
    }
    for (std::int64_t c = 0; c < call_.values(); ++c) {
      all.values.push_back(std::exp(value_exponent(step, c)));
    }
    return all;
  }

 private:
  const scan_call& call_;
  std::int64_t sequence_, head_, entry_, begin_ = 0, end_;
};

/// The state [K,V] of a walk behind the tokens taken so far.
class scan_state {
 public:
  scan_state(const scan_call& call, const scan_walk& walk)
      : keys_(call.keys()), values_(call.values()), state_(keys_ * values_) {
    for (std::int64_t i = 0; i < keys_ * values_; ++i) {
      state_.add(i, walk.initial(i / values_, i % values_));
    }
  }

  void take(const scan_walk& walk, std::int64_t step) {
    const scan_decays decays = walk.decays(step);
    for (std::int64_t key = 0; key < keys_; ++key) {
      const double k = walk.k(step, key);
      for (std::int64_t value = 0; value < values_; ++value) {
        const std::int64_t i = key * values_ + value;
        state_.multiply(i, decays.of(key, value));
        state_.add(i, k * walk.v(step, value));
      }
    }
  }

  double value(std::int64_t key, std::int64_t value) const {
    return state_.value(key * values_ + value);
  }
  double size(std::int64_t key, std::int64_t value) const {
    return state_.size(key * values_ + value);
  }

 private:
  std::int64_t keys_, values_;
  sized_values state_;
};

inline double largest_exponent(const scan_call& call, const scan_walk& walk) {
  double most = 0;
  const auto note = [&](double exponent) {
    if (std::isfinite(exponent)) most = std::max(most, std::fabs(exponent));
  };
  for (std::int64_t step = 0; step < walk.length(); ++step) {
    for (std::int64_t c = 0; c < call.keys(); ++c) note(walk.key_exponent(step, c));
    for (std::int64_t c = 0; c < call.values(); ++c) note(walk.value_exponent(step, c));
  }
  return most;
}

/// What a token adds to its row of out.
inline void read_state(const scan_call& call, const scan_walk& walk, std::int64_t step,
                       std::int64_t head, const scan_state& state, sized_values& out) {
  for (std::int64_t key = 0; key < call.keys(); ++key) {
    const double q = call.scale * walk.q(step, key);
    for (std::int64_t value = 0; value < call.values(); ++value) {
      const std::int64_t place = walk.place(step, call.heads(), head, call.values(), value);
      out.add(place, q * state.value(key, value), std::fabs(q) * state.size(key, value));
      if (!call.u.present()) continue;
      out.add(place, q * at(call.u, head, key) * walk.k(step, key) * walk.v(step, value));
    }
  }
}

inline scan_outputs scan_forward(const scan_call& call) {
  const std::int64_t heads = call.heads(), keys = call.keys(), values = call.values();
  scan_outputs all;
  all.out = sized_values(call.q.extent[0] * call.tokens() * heads * values);
  all.final_state = sized_values(call.sequences() * heads * keys * values);
  for (std::int64_t n = 0; n < call.sequences(); ++n) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const scan_walk walk(call, n, h);
      scan_state state(call, walk);
      for (std::int64_t step = 0; step < walk.length(); ++step) {
        if (call.u.present()) read_state(call, walk, step, h, state, all.out);
        state.take(walk, step);
        if (!call.u.present()) read_state(call, walk, step, h, state, all.out);
      }
      for (std::int64_t i = 0; i < keys * values; ++i) {
        const std::int64_t key = i / values, value = i % values;
        all.final_state.add(walk.state_place(key, value), state.value(key, value),
                            state.size(key, value));
      }
      all.largest_exponent = std::max(all.largest_exponent, largest_exponent(call, walk));
    }
  }
  return all;
}

}  // namespace tessera::reference
