// The recurrence of the delta rules for one sequence and value head, and its gradient, as the
// definition has them: every state is kept. `Number` is double for the truth, float for what sets
// the tolerance.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace tessera::reference {

/// States are sums that may cancel: of what is read from them a row counts for no less than this
/// share of the largest.
inline constexpr double least_share_of_states = 0.05;

/// Multiplications and additions of values [B,T,HV,V] whose states have `key_dim` rows: an element
/// decays, is read, written and read again. On the way back there are three times as many.
inline double delta_flops(const tensor_view& values, std::int64_t key_dim, bool backward) {
  return (backward ? 21.0 : 7.0) * static_cast<double>(values.elements() * key_dim);
}

template <class Number>
using numbers = std::vector<Number>;

/// What a token brings; in the gradient, what it gets. `decay` are factors, their gradient that of
/// the logarithm.
template <class Number>
struct delta_token {
  bool is_padding = false;  ///< gives 0, changes nothing
  bool starts_anew = false;
  numbers<Number> query, key, decay, value;
  Number beta = 0;
  numbers<Number> read, write;  ///< of low-rank updates; empty: the delta rule
};

/// The sum of signed terms and of their magnitudes, which errors are relative to.
template <class Number>
struct term_sum {
  Number value = 0;
  double size = 0;
  void add(Number term) {
    value += term;
    size += std::fabs(static_cast<double>(term));
  }
};

/// The same of each element of a vector; `size` is the largest.
template <class Number>
struct term_sums {
  numbers<Number> value;
  double size = 0;
};

/// Largest magnitude; 0 for none.
template <class Number>
double largest_of(const numbers<Number>& values) {
  double most = 0;
  for (const Number each : values) most = std::max(most, std::fabs(static_cast<double>(each)));
  return most;
}

template <class Number>
struct delta_token_gradient {
  term_sums<Number> query, key, decay, value, read, write;
  term_sum<Number> beta;
  double state_size = 0;  ///< of the gradient of the state, before what the step takes back of it
};

/// A state [K,V] or its gradient, row-major.
template <class Number>
struct delta_state {
  std::size_t channels = 0, columns = 0;
  numbers<Number> at;

  delta_state(std::size_t channel_count, std::size_t column_count)
      : channels(channel_count), columns(column_count), at(channel_count * column_count, 0) {}
  Number& operator()(std::size_t c, std::size_t j) { return at[c * columns + j]; }
  Number operator()(std::size_t c, std::size_t j) const { return at[c * columns + j]; }

  double largest() const { return largest_of(at); }

  /// sum over j of row(c) * by(j).
  term_sums<Number> times(const numbers<Number>& by) const {
    term_sums<Number> sums{numbers<Number>(channels), 0};
    for (std::size_t c = 0; c < channels; ++c) {
      term_sum<Number> sum;
      for (std::size_t j = 0; j < columns; ++j) sum.add((*this)(c, j) * by[j]);
      sums.value[c] = sum.value;
      sums.size = std::max(sums.size, sum.size);
    }
    return sums;
  }
  /// sum over c of by(c) * column(j).
  term_sums<Number> transposed_times(const numbers<Number>& by) const {
    term_sums<Number> sums{numbers<Number>(columns), 0};
    for (std::size_t j = 0; j < columns; ++j) {
      term_sum<Number> sum;
      for (std::size_t c = 0; c < channels; ++c) sum.add((*this)(c, j) * by[c]);
      sums.value[j] = sum.value;
      sums.size = std::max(sums.size, sum.size);
    }
    return sums;
  }
  /// this += by * left right^T
  void add_outer(Number by, const numbers<Number>& left, const numbers<Number>& right) {
    for (std::size_t c = 0; c < channels; ++c) {
      for (std::size_t j = 0; j < columns; ++j) (*this)(c, j) += by * left[c] * right[j];
    }
  }
  void scale_rows(const numbers<Number>& by) {
    for (std::size_t c = 0; c < channels; ++c) {
      for (std::size_t j = 0; j < columns; ++j) (*this)(c, j) *= by[c];
    }
  }
  void clear() { std::fill(at.begin(), at.end(), Number(0)); }
};

template <class Number>
struct delta_head {
  std::vector<delta_token<Number>> tokens;
  std::vector<delta_state<Number>> states;  ///< before each token that is no padding, and the last
  std::vector<term_sums<Number>> out;

  /// Delta rule: S^- = diag(decay) S, d = beta (v - S^-^T k), S = S^- + k d^T. Low-rank updates:
  /// S = diag(decay) S + write (S^T read)^T + k v^T. out = S^T q, whose error is relative to the
  /// largest elements that states had so far and that have not decayed since: a write that takes
  /// them away leaves their rounding.
  void forward(const delta_state<Number>& initial) {
    delta_state<Number> state = initial;
    double largest_held = state.largest();
    for (const delta_token<Number>& token : tokens) {
      if (token.starts_anew) state.clear(), largest_held = 0;
      states.push_back(state);
      if (token.is_padding) {
        out.push_back({numbers<Number>(state.columns, 0), 0});
        continue;
      }
      advance(state, token);
      largest_held = std::max(largest_held * largest_of(token.decay), state.largest());
      out.push_back(state.transposed_times(token.query));
      out.back().size = std::max(out.back().size, largest_held * largest_of(token.query));
    }
    states.push_back(state);
  }

  /// From the gradients of `out` and of the last state those of every token; `d_state` becomes that
  /// of the initial state. Errors of gradients of decays are relative to the largest elements that
  /// it had so far and that have not decayed since: a step that takes them back leaves their
  /// rounding. Chunks may find them as sums over the tokens that follow, whose terms cancel but for
  /// the rounding of f32.
  std::vector<delta_token_gradient<Number>> backward(const std::vector<numbers<Number>>& d_out,
                                                     delta_state<Number>& d_state) const {
    std::vector<delta_token_gradient<Number>> all(tokens.size());
    gradient_sizes sizes{d_state.largest()};
    for (std::size_t t = tokens.size(); t-- > 0;) {
      if (tokens[t].is_padding) continue;
      if (tokens[t].read.empty()) {
        delta_step_back(t, d_out[t], d_state, sizes, all[t]);
      } else {
        low_rank_step_back(t, d_out[t], d_state, sizes, all[t]);
      }
      sizes.held *= largest_of(tokens[t].decay);
      if (tokens[t].starts_anew) d_state.clear(), sizes = {};
    }
    return all;
  }

 private:
  struct gradient_sizes {
    double held = 0;  ///< the largest elements of d_state so far that have not decayed since
    /// The largest product of elements of a state and of its gradient, over the tokens so far.
    double product = 0;
  };

  static void advance(delta_state<Number>& state, const delta_token<Number>& token) {
    if (token.read.empty()) {
      state.scale_rows(token.decay);
      return state.add_outer(1, token.key, written(state, token));
    }
    const numbers<Number> held = state.transposed_times(token.read).value;
    state.scale_rows(token.decay);
    state.add_outer(1, token.write, held);
    state.add_outer(1, token.key, token.value);
  }

  static numbers<Number> written(const delta_state<Number>& decayed,
                                 const delta_token<Number>& token) {
    numbers<Number> held = decayed.transposed_times(token.key).value;
    for (std::size_t j = 0; j < held.size(); ++j) {
      held[j] = token.beta * (token.value[j] - held[j]);
    }
    return held;
  }

  /// The gradient of log decays, for d_state behind the step without the decay itself. A chunk's
  /// sum of terms of f32 is off by some 2^-18 of them; bounds of 16 bits are some 2^-6 of sizes.
  static void find_decay(const delta_token<Number>& token, const delta_state<Number>& decayed,
                         const delta_state<Number>& d_state, const gradient_sizes& sizes,
                         term_sums<Number>& to) {
    to.size = std::max(sizes.held * decayed.largest(), 0x1p-10 * sizes.product);
    to.value.assign(token.decay.size(), 0);
    for (std::size_t c = 0; c < token.decay.size(); ++c) {
      term_sum<Number> sum;
      for (std::size_t j = 0; j < decayed.columns; ++j) sum.add(d_state(c, j) * decayed(c, j));
      to.value[c] = sum.value;
      to.size = std::max(to.size, sum.size);
    }
  }

  void low_rank_step_back(std::size_t t, const numbers<Number>& d_out, delta_state<Number>& d_state,
                          gradient_sizes& sizes, delta_token_gradient<Number>& to) const {
    const delta_token<Number>& token = tokens[t];
    const delta_state<Number>& before = states[t];
    delta_state<Number> after = before;
    advance(after, token);
    to.query = after.times(d_out);
    d_state.add_outer(1, token.query, d_out);
    sizes.held = std::max(sizes.held, d_state.largest());
    sizes.product = std::max(sizes.product, d_state.largest() * after.largest());
    const numbers<Number> held = before.transposed_times(token.read).value;
    to.key = d_state.times(token.value);
    to.value = d_state.transposed_times(token.key);
    to.write = d_state.times(held);
    const numbers<Number> d_held = d_state.transposed_times(token.write).value;
    to.read = before.times(d_held);
    delta_state<Number> decayed = before;
    decayed.scale_rows(token.decay);
    find_decay(token, decayed, d_state, sizes, to.decay);
    d_state.scale_rows(token.decay);
    d_state.add_outer(1, token.read, d_held);
  }

  void delta_step_back(std::size_t t, const numbers<Number>& d_out, delta_state<Number>& d_state,
                       gradient_sizes& sizes, delta_token_gradient<Number>& to) const {
    const delta_token<Number>& token = tokens[t];
    delta_state<Number> before = states[t];
    before.scale_rows(token.decay);
    const numbers<Number> missing = written(before, token);
    delta_state<Number> after = before;
    after.add_outer(1, token.key, missing);

    to.query = after.times(d_out);
    d_state.add_outer(1, token.query, d_out);
    sizes.held = std::max(sizes.held, d_state.largest());
    sizes.product = std::max(sizes.product, d_state.largest() * after.largest());
    const term_sums<Number> d_written = d_state.transposed_times(token.key);
    to.value = d_written;
    to.value.size *= std::fabs(static_cast<double>(token.beta));
    const numbers<Number> held = before.transposed_times(token.key).value;
    for (std::size_t j = 0; j < held.size(); ++j) {
      to.value.value[j] *= token.beta;
      to.beta.add(d_written.value[j] * token.value[j]);
      to.beta.add(-d_written.value[j] * held[j]);
    }
    // Terms of d_written that cancel leave their rounding.
    to.beta.size =
        std::max(to.beta.size, d_written.size * (largest_of(token.value) + largest_of(held)));
    to.key = d_state.times(missing);
    const term_sums<Number> by_read = before.times(to.value.value);
    to.key.size += by_read.size;
    for (std::size_t c = 0; c < token.key.size(); ++c) to.key.value[c] -= by_read.value[c];
    to.state_size = std::max(to.state_size, d_state.largest());
    d_state.add_outer(-1, token.key, to.value.value);
    find_decay(token, before, d_state, sizes, to.decay);
    d_state.scale_rows(token.decay);
  }
};

}  // namespace tessera::reference
