// Gradients of the selective state-space operations, by the definition; see state_space.hpp. States
// of a whole sequence are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "state_space.hpp"

namespace tessera::reference {

template <class Number>
class state_space_gradients : public state_space_evaluation<Number> {
  using base = state_space_evaluation<Number>;
  using base::args_, base::options_, base::channels_, base::states_, base::index;

 public:
  using number = typename base::number;

  state_space_gradients(const state_space_args& args, const state_space_options& options,
                        bool has_heads)
      : base(args, options, has_heads) {
    const std::size_t tokens = index(args.x.extent[0] * args.x.extent[1]);
    const auto resize = [](std::vector<number>& all, std::size_t count) { all.resize(count); };
    resize(d_y_, base::y_.size()), resize(d_x, base::y_.size()), resize(d_z, base::y_.size());
    resize(d_dt, tokens * index(base::heads_));
    resize(d_B, tokens * index(base::groups_ * states_)), resize(d_C, d_B.size());
    resize(d_A, index(has_heads ? base::heads_ : channels_ * states_));
    resize(d_D, index(base::has_column_skips() ? channels_ : base::heads_));
    resize(d_dt_bias, index(base::heads_));
    resize(d_norm_weight, index(channels_));
    resize(d_initial_state, base::final_.size());
    for (std::int64_t sequence = 0; sequence < base::sequences_; ++sequence) {
      const auto range = base::tokens_of(sequence);
      for (std::int64_t token = range.begin; token < range.end; ++token) {
        finish_back(range.entry, token);
      }
      for (std::int64_t channel = 0; channel < channels_; ++channel) scan_back(sequence, channel);
    }
  }

  std::vector<number> d_x, d_dt, d_A, d_B, d_C, d_D, d_z, d_dt_bias, d_norm_weight, d_initial_state;

 private:
  void scan_back(std::int64_t sequence, std::int64_t channel) {
    const auto range = base::tokens_of(sequence);
    const std::vector<number> history = states_of(sequence, channel);
    std::vector<number> d_h(index(states_));
    for (std::int64_t n = 0; n < states_; ++n) {
      d_h[index(n)] = base::state(args_.d_final_state, sequence, channel, n);
    }
    for (std::int64_t token = range.end - 1; token >= range.begin; --token) {
      const number* const before = history.data() + index((token - range.begin) * states_);
      step_back(range.entry, token, channel, before, d_h);
    }
    for (std::int64_t n = 0; n < states_; ++n) {
      d_initial_state[index((sequence * channels_ + channel) * states_ + n)] = d_h[index(n)];
    }
  }

  /// The states in front of each token of a sequence, and those behind the last.
  std::vector<number> states_of(std::int64_t sequence, std::int64_t channel) const {
    const auto range = base::tokens_of(sequence);
    std::vector<number> all(index((range.end - range.begin + 1) * states_));
    for (std::int64_t n = 0; n < states_; ++n) {
      all[index(n)] = base::state(args_.initial_state, sequence, channel, n);
    }
    for (std::int64_t token = range.begin; token < range.end; ++token) {
      const std::size_t before = index((token - range.begin) * states_);
      for (std::int64_t n = 0; n < states_; ++n) {
        all[before + index(states_ + n)] =
            base::next_state(range.entry, token, channel, n, all[before + index(n)]);
      }
    }
    return all;
  }

  /// `before` are the states in front of the token, behind them those after it.
  void step_back(std::int64_t entry, std::int64_t token, std::int64_t channel, const number* before,
                 std::vector<number>& d_h) {
    const std::int64_t head = channel / base::head_columns_;
    const number step = base::step_of(entry, token, channel);
    const number x = base::token_value(args_.x, entry, token, channel);
    const number d_y = d_y_[base::token_index(entry, token, channel)];
    number moved, d_step;
    for (std::int64_t n = 0; n < states_; ++n) {
      const number b = base::group_value(args_.B, entry, token, channel, n);
      const number c = base::group_value(args_.C, entry, token, channel, n);
      const number rate = base::decay_rate(channel, n);
      const std::size_t group = index(
          ((entry * base::tokens_ + token) * base::groups_ + base::group_of(channel)) * states_ +
          n);
      number& d_state = d_h[index(n)];
      d_C[group] += d_y * before[states_ + n];
      d_state += d_y * c;
      d_B[group] += d_state * step * x;
      moved += d_state * b;
      d_state = d_state * exp_of(rate * step);
      const number of_exponent = d_state * before[n];
      d_step += rate * of_exponent;
      d_A[index(base::has_heads_ ? head : channel * states_ + n)] += step * of_exponent;
    }
    d_step += x * moved;
    number& d_input = d_x[base::token_index(entry, token, channel)];
    d_input = step * moved;
    if (args_.D.present()) d_input += base::skip_weight(channel) * d_y;
    d_D[index(base::has_column_skips() ? channel : head)] += d_y * x;
    const number d_raw = d_step * base::step_slope(entry, token, channel);
    d_dt[index((entry * base::tokens_ + token) * base::heads_ + head)] += d_raw;
    d_dt_bias[index(head)] += d_raw;
  }

  /// From the gradients of a token's outputs to those of y, z and norm_weight.
  void finish_back(std::int64_t entry, std::int64_t token) {
    const std::int64_t size =
        options_.norm ? options_.norm_group_size.value_or(channels_) : channels_;
    for (std::int64_t first = 0; first < channels_; first += size) {
      number squares, product;
      for (std::int64_t channel = first; options_.norm && channel < first + size; ++channel) {
        const number u = base::normalised_part(entry, token, channel);
        squares += u * u;
        product += u * weighted_gradient(entry, token, channel);
      }
      const number r = options_.norm ? base::reciprocal_rms(squares, size) : number(Number(1));
      const number shared = product * r * r * r * number(Number(1) / static_cast<Number>(size));
      for (std::int64_t channel = first; channel < first + size; ++channel) {
        channel_back(entry, token, channel, r, shared);
      }
    }
  }

  void channel_back(std::int64_t entry, std::int64_t token, std::int64_t channel, number r,
                    number shared) {
    const std::size_t at = base::token_index(entry, token, channel);
    const number y = base::y_[at], gate = base::gate(entry, token, channel);
    const number d_out = base::token_value(args_.d_out, entry, token, channel);
    number d_gate;
    if (!options_.norm) {
      d_y_[at] = d_out * gate;
      d_gate = d_out * y;
    } else {
      const number u = base::normalised_part(entry, token, channel);
      const number d_u = r * weighted_gradient(entry, token, channel) - u * shared;
      const number of_gate = options_.norm_before_gate ? gate : number(Number(1));
      d_norm_weight[index(channel)] += d_out * of_gate * u * r;
      d_y_[at] = options_.norm_before_gate ? d_u : d_u * gate;
      d_gate = options_.norm_before_gate ? d_out * y * r * base::norm_weight(channel) : d_u * y;
    }
    if (args_.z.present()) d_z[at] = d_gate * base::gate_slope(entry, token, channel);
  }

  /// The gradient of what has been normalised.
  number weighted_gradient(std::int64_t entry, std::int64_t token, std::int64_t channel) const {
    const number d_out = base::token_value(args_.d_out, entry, token, channel);
    const number weighted = d_out * base::norm_weight(channel);
    return options_.norm_before_gate ? weighted * base::gate(entry, token, channel) : weighted;
  }

  std::vector<number> d_y_;
};

}  // namespace tessera::reference
