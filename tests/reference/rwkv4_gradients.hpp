// Gradients of rwkv4, by the definition; see rwkv4.hpp. Sums of a whole sequence are kept.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "rwkv4.hpp"

namespace tessera::reference {

template <class Number>
class rwkv4_gradients : public rwkv4_evaluation<Number> {
  using base = rwkv4_evaluation<Number>;
  using base::args_, base::channels_, base::index;
  using typename base::sums;

 public:
  using number = typename base::number;

  explicit rwkv4_gradients(const rwkv4_args& args) : base(args) {
    d_k.resize(base::out_.size()), d_v.resize(base::out_.size());
    d_w.resize(index(channels_)), d_u.resize(index(channels_));
    d_initial_state.resize(base::final_.size());
    const std::int64_t sequences =
        static_cast<std::int64_t>(base::final_.size()) / std::max<std::int64_t>(3 * channels_, 1);
    for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
      for (std::int64_t channel = 0; channel < channels_; ++channel) scan_back(sequence, channel);
    }
  }

  std::vector<number> d_k, d_v, d_w, d_u, d_initial_state;

 private:
  /// Gradients of sums.
  struct sum_gradients {
    number alpha, beta, eps;
  };

  void scan_back(std::int64_t sequence, std::int64_t channel) {
    const auto tokens = base::tokens_of(sequence);
    std::vector<sums> before{base::initial(sequence, channel)};
    for (std::int64_t token = tokens.begin; token < tokens.end; ++token) {
      before.push_back(base::next_sums(tokens.entry, token, channel, before.back()));
    }
    sum_gradients d_sums{final_gradient(sequence, 0, channel), final_gradient(sequence, 1, channel),
                         final_gradient(sequence, 2, channel)};
    for (std::int64_t token = tokens.end - 1; token >= tokens.begin; --token) {
      step_back(tokens.entry, token, channel, before[index(token - tokens.begin)], d_sums);
    }
    const std::int64_t state = sequence * 3 * channels_ + channel;
    d_initial_state[index(state)] = d_sums.alpha;
    d_initial_state[index(state + channels_)] = d_sums.beta;
    d_initial_state[index(state + 2 * channels_)] = d_sums.eps;
  }

  number final_gradient(std::int64_t sequence, std::int64_t row, std::int64_t channel) const {
    if (!args_.d_final_state.present()) return {};
    return static_cast<Number>(at(args_.d_final_state, sequence, row, channel));
  }

  void step_back(std::int64_t entry, std::int64_t token, std::int64_t channel, const sums& before,
                 sum_gradients& d_sums) {
    const std::size_t place = index((entry * base::tokens_ + token) * channels_ + channel);
    const Number k = base::key(entry, token, channel), decay = base::decay_of(channel);
    const number v = base::value(entry, token, channel);
    const auto read = base::read_weights(entry, token, channel, before);
    const number below = read.of_sums * before.beta + read.of_token;
    const number d_out = static_cast<Number>(at(args_.d_out, entry, token, channel));
    const number d_above = d_out / below;
    const number d_below = number() - d_above * base::out_[place];
    const number d_key = read.of_token * (v * d_above + d_below);

    const Number decayed = decay + before.eps, most = std::max(decayed, k);
    const number kept = power_of_difference(decayed, most);
    const number added = power_of_difference(k, most);
    const number of_kept = kept * (before.alpha * d_sums.alpha + before.beta * d_sums.beta);
    const number of_added = added * (v * d_sums.alpha + d_sums.beta);
    const number d_most = d_sums.eps - (of_kept + of_added);
    const Number share = decayed > k ? Number(1) : decayed < k ? Number(0) : Number(0.5);
    const number d_decayed = of_kept + number(share) * d_most;

    d_k[place] = d_key + of_added + number(Number(1) - share) * d_most;
    d_v[place] = read.of_token * d_above + added * d_sums.alpha;
    d_w[index(channel)] += number(decay) * d_decayed;
    d_u[index(channel)] += d_key;
    d_sums = {read.of_sums * d_above + kept * d_sums.alpha,
              read.of_sums * d_below + kept * d_sums.beta,
              read.of_sums * (before.alpha * d_above + before.beta * d_below) + d_decayed};
  }
};

}  // namespace tessera::reference
