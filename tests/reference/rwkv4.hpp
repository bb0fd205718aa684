// The definition of rwkv4, one channel after the other; see state_space.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/families/selective_scan/rwkv4_args.hpp>

#include "elements.hpp"
#include "tracked.hpp"

namespace tessera::reference {

template <class Number>
class rwkv4_evaluation {
 public:
  using number = tracked<Number>;

  explicit rwkv4_evaluation(const rwkv4_args& args) : args_(args) {
    tokens_ = args.k.extent[1];
    channels_ = args.k.extent[2];
    const bool packed = args.cu_seqlens.present();
    const std::int64_t sequences = packed ? args.cu_seqlens.extent[0] - 1 : args.k.extent[0];
    out_.resize(index(args.k.elements()));
    final_.resize(index(sequences * 3 * channels_));
    for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
      for (std::int64_t channel = 0; channel < channels_; ++channel) scan(sequence, channel);
    }
  }

  const std::vector<number>& out() const noexcept { return out_; }
  const std::vector<number>& final_state() const noexcept { return final_; }

 protected:
  /// Sums relative to e^eps.
  struct sums {
    number alpha, beta;
    Number eps = Number(-1e30);
  };
  /// What an output gives the sums and its own token.
  struct weights {
    number of_sums, of_token;
  };
  struct token_span {
    std::int64_t entry = 0, begin = 0, end = 0;
  };
  token_span tokens_of(std::int64_t sequence) const {
    if (!args_.cu_seqlens.present()) return {sequence, 0, tokens_};
    return {0, static_cast<std::int64_t>(at(args_.cu_seqlens, sequence)),
            static_cast<std::int64_t>(at(args_.cu_seqlens, sequence + 1))};
  }

  void scan(std::int64_t sequence, std::int64_t channel) {
    sums now = initial(sequence, channel);
    const token_span tokens = tokens_of(sequence);
    for (std::int64_t token = tokens.begin; token < tokens.end; ++token) {
      const auto [of_sums, of_token] = read_weights(tokens.entry, token, channel, now);
      out_[index((tokens.entry * tokens_ + token) * channels_ + channel)] =
          (of_sums * now.alpha + of_token * value(tokens.entry, token, channel)) /
          (of_sums * now.beta + of_token);
      now = next_sums(tokens.entry, token, channel, now);
    }
    const std::int64_t state = sequence * 3 * channels_ + channel;
    final_[index(state)] = now.alpha;
    final_[index(state + channels_)] = now.beta;
    final_[index(state + 2 * channels_)] = now.eps;
  }

  weights read_weights(std::int64_t entry, std::int64_t token, std::int64_t channel,
                       const sums& now) const {
    const Number own = static_cast<Number>(at(args_.u, channel)) + key(entry, token, channel);
    const Number tau = std::max(now.eps, own);
    return {power_of_difference(now.eps, tau), power_of_difference(own, tau)};
  }
  sums next_sums(std::int64_t entry, std::int64_t token, std::int64_t channel,
                 const sums& now) const {
    const Number k = key(entry, token, channel), decayed = decay_of(channel) + now.eps;
    const Number eps = std::max(decayed, k);
    const number kept = power_of_difference(decayed, eps), added = power_of_difference(k, eps);
    return {kept * now.alpha + added * value(entry, token, channel), kept * now.beta + added, eps};
  }

  Number decay_of(std::int64_t channel) const {
    return -std::exp(static_cast<Number>(at(args_.w, channel)));
  }
  Number key(std::int64_t entry, std::int64_t token, std::int64_t channel) const {
    return static_cast<Number>(at(args_.k, entry, token, channel));
  }
  number value(std::int64_t entry, std::int64_t token, std::int64_t channel) const {
    return static_cast<Number>(at(args_.v, entry, token, channel));
  }
  sums initial(std::int64_t sequence, std::int64_t channel) const {
    const tensor_view& view = args_.initial_state;
    if (!view.present()) return {};
    const auto row = [&](std::int64_t n) {
      return static_cast<Number>(at(view, sequence, n, channel));
    };
    return {row(0), row(1), row(2)};
  }
  static std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

  const rwkv4_args& args_;
  std::int64_t tokens_ = 0, channels_ = 0;
  std::vector<number> out_, final_;
};

}  // namespace tessera::reference
