// The definition of the selective state-space operations, one channel after the other: in double,
// the truth, or in float with results rounded to the tensors' types, what sets the tolerance.
//
// Channel i of state_space_v1 is a head of one column: both operations are then the same but for
// the shape of A.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/families/selective_scan/state_space_args.hpp>
#include <tessera/families/selective_scan/state_space_options.hpp>

#include "elements.hpp"
#include "tracked.hpp"

namespace tessera::reference {

/// An output in row-major order, and the size of the terms of each element.
struct tracked_output {
  std::vector<double> values;
  std::vector<double> sizes;
};

template <class Number>
class state_space_evaluation {
 public:
  using number = tracked<Number>;

  state_space_evaluation(const state_space_args& args, const state_space_options& options,
                         bool has_heads)
      : args_(args), options_(options), has_heads_(has_heads) {
    const auto& x = args.x.extent;
    tokens_ = x[1];
    heads_ = x[2];
    head_columns_ = has_heads ? x[3] : 1;
    channels_ = heads_ * head_columns_;
    states_ = args.B.extent[static_cast<std::size_t>(args.B.rank - 1)];
    groups_ = args.B.rank == 4 ? args.B.extent[2] : 1;
    packed_ = args.cu_seqlens.present();
    sequences_ = packed_ ? args.cu_seqlens.extent[0] - 1 : x[0];
    y_.resize(static_cast<std::size_t>(x[0] * tokens_ * channels_));
    out_.resize(y_.size());
    final_.resize(static_cast<std::size_t>(sequences_ * channels_ * states_));
    for (std::int64_t sequence = 0; sequence < sequences_; ++sequence) {
      for (std::int64_t channel = 0; channel < channels_; ++channel) scan(sequence, channel);
      const token_span tokens = tokens_of(sequence);
      for (std::int64_t token = tokens.begin; token < tokens.end; ++token) {
        finish(tokens.entry, token);
      }
    }
  }

  const std::vector<number>& out() const noexcept { return out_; }
  const std::vector<number>& final_state() const noexcept { return final_; }

 protected:
  struct token_span {
    std::int64_t entry = 0, begin = 0, end = 0;
  };
  token_span tokens_of(std::int64_t sequence) const {
    if (!packed_) return {sequence, 0, tokens_};
    return {0, static_cast<std::int64_t>(at(args_.cu_seqlens, sequence)),
            static_cast<std::int64_t>(at(args_.cu_seqlens, sequence + 1))};
  }

  void scan(std::int64_t sequence, std::int64_t channel) {
    std::vector<number> h(static_cast<std::size_t>(states_));
    for (std::int64_t n = 0; n < states_; ++n)
      h[index(n)] = state(args_.initial_state, sequence, channel, n);
    const token_span tokens = tokens_of(sequence);
    for (std::int64_t token = tokens.begin; token < tokens.end; ++token) {
      number y;
      for (std::int64_t n = 0; n < states_; ++n) {
        h[index(n)] = next_state(tokens.entry, token, channel, n, h[index(n)]);
        y += h[index(n)] * group_value(args_.C, tokens.entry, token, channel, n);
      }
      if (args_.D.present()) {
        y += skip_weight(channel) * token_value(args_.x, tokens.entry, token, channel);
      }
      y_[token_index(tokens.entry, token, channel)] = y;
    }
    for (std::int64_t n = 0; n < states_; ++n) {
      final_[index((sequence * channels_ + channel) * states_ + n)] = h[index(n)];
    }
  }

  number next_state(std::int64_t entry, std::int64_t token, std::int64_t channel, std::int64_t n,
                    number h) const {
    const number step = step_of(entry, token, channel);
    const number moved = step * token_value(args_.x, entry, token, channel) *
                         group_value(args_.B, entry, token, channel, n);
    return exp_of(decay_rate(channel, n) * step) * h + moved;
  }

  /// Gate and norm of a token.
  void finish(std::int64_t entry, std::int64_t token) {
    const std::int64_t size =
        options_.norm ? options_.norm_group_size.value_or(channels_) : channels_;
    for (std::int64_t first = 0; first < channels_; first += size) {
      number squares;
      for (std::int64_t channel = first; channel < first + size; ++channel) {
        const number u = normalised_part(entry, token, channel);
        squares += u * u;
      }
      for (std::int64_t channel = first; channel < first + size; ++channel) {
        number& out = out_[token_index(entry, token, channel)];
        if (!options_.norm) {
          out = y_[token_index(entry, token, channel)] * gate(entry, token, channel);
          continue;
        }
        out = normalised_part(entry, token, channel) * reciprocal_rms(squares, size);
        out = out * norm_weight(channel);
        if (options_.norm_before_gate) out = out * gate(entry, token, channel);
      }
    }
  }

  number normalised_part(std::int64_t entry, std::int64_t token, std::int64_t channel) const {
    const number y = y_[token_index(entry, token, channel)];
    return options_.norm_before_gate ? y : y * gate(entry, token, channel);
  }
  number norm_weight(std::int64_t channel) const {
    if (!args_.norm_weight.present()) return Number(1);
    return static_cast<Number>(at(args_.norm_weight, channel));
  }
  number reciprocal_rms(number squares, std::int64_t size) const {
    const Number mean = squares.value / static_cast<Number>(size);
    const Number root = std::sqrt(mean + static_cast<Number>(options_.norm_eps));
    // The terms of the sum are larger than their squares where they cancelled before.
    const double excess = squares.value > 0 ? squares.size / static_cast<double>(squares.value) : 1;
    return {Number(1) / root, excess / static_cast<double>(root)};
  }

  /// How a step changes with dt: 0 beyond its bounds.
  number step_slope(std::int64_t entry, std::int64_t token, std::int64_t channel) const {
    const Number raw = raw_step(entry, token, channel), step = unbounded_step(raw);
    if (options_.dt_min && step < static_cast<Number>(*options_.dt_min)) return Number(0);
    if (options_.dt_max && step > static_cast<Number>(*options_.dt_max)) return Number(0);
    return options_.dt_softplus ? Number(1) / (Number(1) + std::exp(-raw)) : Number(1);
  }
  number gate_slope(std::int64_t entry, std::int64_t token, std::int64_t channel) const {
    const Number z = token_value(args_.z, entry, token, channel).value;
    const Number s = Number(1) / (Number(1) + std::exp(-z));
    return s * (Number(1) + z * (Number(1) - s));
  }

  /// silu(z), 1 without z.
  number gate(std::int64_t entry, std::int64_t token, std::int64_t channel) const {
    if (!args_.z.present()) return Number(1);
    const number z = token_value(args_.z, entry, token, channel);
    return z * number(Number(1) / (Number(1) + std::exp(-z.value)));
  }

  /// What dt and its bias make, in front of its bounds.
  Number raw_step(std::int64_t entry, std::int64_t token, std::int64_t channel) const {
    const std::int64_t head = channel / head_columns_;
    const auto raw = static_cast<Number>(at(args_.dt, entry, token, head));
    if (!args_.dt_bias.present()) return raw;
    return raw + static_cast<Number>(at(args_.dt_bias, head));
  }
  Number unbounded_step(Number raw) const {
    if (!options_.dt_softplus) return raw;
    return raw > 0 ? raw + std::log1p(std::exp(-raw)) : std::log1p(std::exp(raw));
  }
  number step_of(std::int64_t entry, std::int64_t token, std::int64_t channel) const {
    Number step = unbounded_step(raw_step(entry, token, channel));
    if (options_.dt_min) step = std::fmax(step, static_cast<Number>(*options_.dt_min));
    if (options_.dt_max) step = std::fmin(step, static_cast<Number>(*options_.dt_max));
    return step;
  }

  number decay_rate(std::int64_t channel, std::int64_t n) const {
    return static_cast<Number>(has_heads_ ? at(args_.A, channel / head_columns_)
                                          : at(args_.A, channel, n));
  }
  bool has_column_skips() const { return has_heads_ && args_.D.rank == 2; }
  number skip_weight(std::int64_t channel) const {
    const std::int64_t head = channel / head_columns_;
    return static_cast<Number>(has_column_skips() ? at(args_.D, head, channel % head_columns_)
                                                  : at(args_.D, head));
  }
  number token_value(const tensor_view& view, std::int64_t entry, std::int64_t token,
                     std::int64_t channel) const {
    const std::int64_t head = channel / head_columns_, column = channel % head_columns_;
    return static_cast<Number>(has_heads_ ? at(view, entry, token, head, column)
                                          : at(view, entry, token, channel));
  }
  std::int64_t group_of(std::int64_t channel) const {
    return channel / head_columns_ / (heads_ / groups_);
  }
  number group_value(const tensor_view& view, std::int64_t entry, std::int64_t token,
                     std::int64_t channel, std::int64_t n) const {
    const std::int64_t group = group_of(channel);
    return static_cast<Number>(view.rank == 4 ? at(view, entry, token, group, n)
                                              : at(view, entry, token, n));
  }
  number state(const tensor_view& view, std::int64_t sequence, std::int64_t channel,
               std::int64_t n) const {
    if (!view.present()) return {};
    const std::int64_t head = channel / head_columns_, column = channel % head_columns_;
    return static_cast<Number>(has_heads_ ? at(view, sequence, head, column, n)
                                          : at(view, sequence, channel, n));
  }

  static std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }
  std::size_t token_index(std::int64_t entry, std::int64_t token, std::int64_t channel) const {
    return index((entry * tokens_ + token) * channels_ + channel);
  }

  const state_space_args& args_;
  const state_space_options& options_;
  bool has_heads_, packed_ = false;
  std::int64_t tokens_ = 0, heads_ = 0, head_columns_ = 0, channels_ = 0, states_ = 0, groups_ = 1,
               sequences_ = 0;
  std::vector<number> y_, out_, final_;
};

}  // namespace tessera::reference
