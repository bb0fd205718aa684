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
    packed_ = args.cu_seqlens.present();
    const std::int64_t sequences = packed_ ? args.cu_seqlens.extent[0] - 1 : args.k.extent[0];
    out_.resize(index(args.k.elements()));
    final_.resize(index(sequences * 3 * channels_));
    for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
      for (std::int64_t channel = 0; channel < channels_; ++channel) scan(sequence, channel);
    }
  }

  const std::vector<number>& out() const noexcept { return out_; }
  const std::vector<number>& final_state() const noexcept { return final_; }

 private:
  /// Sums relative to e^eps.
  struct sums {
    number alpha, beta;
    Number eps = Number(-1e30);
  };

  void scan(std::int64_t sequence, std::int64_t channel) {
    const Number decay = -std::exp(static_cast<Number>(at(args_.w, channel)));
    const Number bonus = static_cast<Number>(at(args_.u, channel));
    sums now = initial(sequence, channel);
    const std::int64_t entry = packed_ ? 0 : sequence;
    const std::int64_t begin = packed_ ? offset(sequence) : 0;
    const std::int64_t end = packed_ ? offset(sequence + 1) : tokens_;
    for (std::int64_t token = begin; token < end; ++token) {
      const Number k = static_cast<Number>(at(args_.k, entry, token, channel));
      const number v = static_cast<Number>(at(args_.v, entry, token, channel));
      const Number tau = std::max(now.eps, bonus + k);
      const number of_sums = std::exp(now.eps - tau), of_token = std::exp(bonus + k - tau);
      out_[index((entry * tokens_ + token) * channels_ + channel)] =
          (of_sums * now.alpha + of_token * v) / (of_sums * now.beta + of_token);
      const Number eps = std::max(decay + now.eps, k);
      const number kept = std::exp(decay + now.eps - eps), added = std::exp(k - eps);
      now = {kept * now.alpha + added * v, kept * now.beta + added, eps};
    }
    const std::int64_t state = sequence * 3 * channels_ + channel;
    final_[index(state)] = now.alpha;
    final_[index(state + channels_)] = now.beta;
    final_[index(state + 2 * channels_)] = now.eps;
  }

  sums initial(std::int64_t sequence, std::int64_t channel) const {
    const tensor_view& view = args_.initial_state;
    if (!view.present()) return {};
    const auto row = [&](std::int64_t n) {
      return static_cast<Number>(at(view, sequence, n, channel));
    };
    return {row(0), row(1), row(2)};
  }
  std::int64_t offset(std::int64_t sequence) const {
    return static_cast<std::int64_t>(at(args_.cu_seqlens, sequence));
  }
  static std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

  const rwkv4_args& args_;
  bool packed_ = false;
  std::int64_t tokens_ = 0, channels_ = 0;
  std::vector<number> out_, final_;
};

}  // namespace tessera::reference
