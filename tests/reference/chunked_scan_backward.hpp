// Gradients of linear attention with decay by the chain rule, in double, token by token from the
// last; see chunked_scan.hpp. States are kept at the beginning of each run of tokens, and made
// again from there.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "chunked_scan.hpp"

namespace tessera::reference {

struct scan_gradients {
  sized_values d_q, d_k, d_v, d_g, d_gk, d_gv, d_u, d_initial_state;
  double largest_exponent = 0;  ///< of the finite log decays of a token
};

/// The tensors of a backward call beside those of the forward one.
struct scan_incoming {
  tensor_view d_out{}, d_final_state{};
};

/// A sequence and head on the way back.
class scan_way_back {
 public:
  scan_way_back(const scan_call& call, const scan_incoming& incoming, std::int64_t sequence,
                std::int64_t head, scan_gradients& to)
      : call_(call),
        incoming_(incoming),
        head_(head),
        walk_(call, sequence, head),
        to_(to),
        gradient_(call.keys() * call.values()) {
    scan_state state(call, walk_);
    for (std::int64_t step = 0; step < walk_.length(); ++step) {
      if (step % run_tokens == 0) kept_.push_back(state);
      state.take(walk_, step);
    }
    for (std::int64_t i = 0; incoming.d_final_state.present() && i < call.keys() * call.values();
         ++i) {
      gradient_.add(
          i, at(incoming.d_final_state, sequence, head, i / call.values(), i % call.values()));
    }
  }

  void run() {
    for (std::int64_t step = walk_.length() - 1; step >= 0; --step) {
      if (states_.empty()) make_states(step / run_tokens);
      decays_ = walk_.decays(step);
      for (std::int64_t key = 0; key < call_.keys(); ++key) {
        for (std::int64_t value = 0; value < call_.values(); ++value) give_back(step, key, value);
      }
      if (step % run_tokens == 0) states_.clear();
    }
    for (std::int64_t i = 0; i < call_.keys() * call_.values(); ++i) {
      to_.d_initial_state.add(walk_.state_place(i / call_.values(), i % call_.values()),
                              gradient_.value(i), gradient_.size(i));
    }
    to_.largest_exponent = std::max(to_.largest_exponent, largest_exponent(call_, walk_));
  }

 private:
  static constexpr std::int64_t run_tokens = 64;

  /// The states before each token of a run, and behind its last.
  void make_states(std::int64_t run) {
    states_.push_back(kept_[static_cast<std::size_t>(run)]);
    const std::int64_t end = std::min((run + 1) * run_tokens, walk_.length());
    for (std::int64_t step = run * run_tokens; step < end; ++step) {
      states_.push_back(states_.back());
      states_.back().take(walk_, step);
    }
  }

  /// What one element of the state has to do with a token.
  void give_back(std::int64_t step, std::int64_t key, std::int64_t value) {
    const std::int64_t i = key * call_.values() + value;
    const auto of_run = static_cast<std::size_t>(step % run_tokens);
    const scan_state& before = states_[of_run];
    const scan_state& seen = states_[of_run + (call_.u.present() ? 0 : 1)];
    const double d_out = walk_.row(incoming_.d_out, step, head_, value);
    const double q = call_.scale * walk_.q(step, key);
    const double k = walk_.k(step, key), v = walk_.v(step, value);
    if (!call_.u.present()) gradient_.add(i, q * d_out);
    add_scaled(to_.d_q, q_place(step, key), call_.scale * d_out, seen.value(key, value),
               seen.size(key, value));
    add_scaled(to_.d_k, k_place(step, key), v, gradient_.value(i), gradient_.size(i));
    add_scaled(to_.d_v, v_place(step, value), k, gradient_.value(i), gradient_.size(i));
    gradient_.multiply(i, decays_.of(key, value));
    const double part = gradient_.value(i) * before.value(key, value);
    const double size = gradient_.size(i) * before.size(key, value);
    const double raw = call_.raw_decay ? walk_.key_exponent(step, key) : 1.0;
    const std::int64_t heads = call_.heads();
    to_.d_g.add(walk_.place(step, heads, head_, 1, 0), part, size);
    to_.d_gk.add(q_place(step, key), raw * part, std::fabs(raw) * size);
    to_.d_gv.add(walk_.place(step, heads, head_, call_.values(), value), part, size);
    if (!call_.u.present()) return;
    gradient_.add(i, q * d_out);
    const double u = at(call_.u, head_, key);
    to_.d_q.add(q_place(step, key), call_.scale * u * k * v * d_out);
    to_.d_k.add(k_place(step, key), q * u * v * d_out);
    to_.d_v.add(v_place(step, value), q * u * k * d_out);
    to_.d_u.add(head_ * call_.keys() + key, q * k * v * d_out);
  }

  static void add_scaled(sized_values& to, std::int64_t place, double factor, double value,
                         double size) {
    to.add(place, factor * value, std::fabs(factor) * size);
  }
  std::int64_t q_place(std::int64_t step, std::int64_t key) const {
    return walk_.place(step, call_.heads(), head_, call_.keys(), key);
  }
  std::int64_t k_place(std::int64_t step, std::int64_t key) const {
    return walk_.place(step, call_.k.extent[2], call_.kv_head(head_), call_.keys(), key);
  }
  std::int64_t v_place(std::int64_t step, std::int64_t value) const {
    return walk_.place(step, call_.k.extent[2], call_.kv_head(head_), call_.values(), value);
  }

  const scan_call& call_;
  const scan_incoming& incoming_;
  std::int64_t head_;
  scan_walk walk_;
  scan_gradients& to_;
  sized_values gradient_;
  scan_decays decays_;
  std::vector<scan_state> kept_;    ///< before each run
  std::vector<scan_state> states_;  ///< of a run; empty before it is made
};

inline scan_gradients scan_backward(const scan_call& call, const scan_incoming& incoming) {
  const std::int64_t tokens = call.q.extent[0] * call.tokens();
  const std::int64_t heads = call.heads(), kv_heads = call.k.extent[2];
  const std::int64_t keys = call.keys(), values = call.values();
  scan_gradients all;
  all.d_q = all.d_gk = sized_values(tokens * heads * keys);
  all.d_k = sized_values(tokens * kv_heads * keys);
  all.d_v = sized_values(tokens * kv_heads * values);
  all.d_g = sized_values(tokens * heads);
  all.d_gv = sized_values(tokens * heads * values);
  all.d_u = sized_values(heads * keys);
  all.d_initial_state = sized_values(call.sequences() * heads * keys * values);
  for (std::int64_t n = 0; n < call.sequences(); ++n) {
    for (std::int64_t h = 0; h < heads; ++h) scan_way_back(call, incoming, n, h, all).run();
  }
  return all;
}

}  // namespace tessera::reference
