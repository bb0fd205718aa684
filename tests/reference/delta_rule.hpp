// The definition of the delta rule operations and of their gradients: tensors to tokens, the
// recurrence (delta_recurrence.hpp), and back.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/families/delta_rule/args.hpp>
#include <tessera/families/delta_rule/options.hpp>

#include "delta_recurrence.hpp"
#include "elements.hpp"

namespace tessera::reference {

/// A tensor of results, row-major, with what errors are relative to: of each row of the last axis
/// for `out`, else of the whole tensor.
struct delta_tensor {
  std::vector<double> values;
  std::vector<double> sizes;
};

/// Results by the member of the args they belong to; empty where it is absent.
struct delta_result {
  delta_tensor out, final_state, d_q, d_k, d_v, d_g, d_gk, d_beta, d_A_log, d_dt_bias,
      d_initial_state;
};

/// Tokens [begin, end) of an entry, with the state of that number.
struct delta_sequence {
  std::int64_t number = 0, entry = 0, begin = 0, end = 0;
};
inline std::vector<delta_sequence> delta_sequences(const tensor_view& tokens,
                                                   const tensor_view& offsets) {
  std::vector<delta_sequence> all;
  if (!offsets.present()) {
    for (std::int64_t b = 0; b < tokens.extent[0]; ++b) all.push_back({b, b, 0, tokens.extent[1]});
    return all;
  }
  for (std::int64_t n = 0; n + 1 < offsets.extent[0]; ++n) {
    all.push_back({n, 0, static_cast<std::int64_t>(at(offsets, n)),
                   static_cast<std::int64_t>(at(offsets, n + 1))});
  }
  return all;
}

template <class Number>
numbers<Number> row_at(const tensor_view& view, std::int64_t entry, std::int64_t token,
                       std::int64_t head) {
  numbers<Number> row(static_cast<std::size_t>(view.extent[3]));
  for (std::size_t c = 0; c < row.size(); ++c) {
    row[c] = static_cast<Number>(at(view, entry, token, head, static_cast<std::int64_t>(c)));
  }
  return row;
}
template <class Number>
delta_state<Number> state_at(const tensor_view& view, std::int64_t number, std::int64_t head,
                             std::int64_t channels, std::int64_t columns) {
  delta_state<Number> state(static_cast<std::size_t>(channels), static_cast<std::size_t>(columns));
  if (!view.present()) return state;
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t j = 0; j < columns; ++j) {
      state(static_cast<std::size_t>(c), static_cast<std::size_t>(j)) =
          static_cast<Number>(at(view, number, head, c, j));
    }
  }
  return state;
}

template <class Number>
Number sigmoid_of(Number x) {
  return 1 / (1 + std::exp(-x));
}

/// x / sqrt(sum x^2 + 1e-6), and the gradient of x.
template <class Number>
struct normalized_row {
  numbers<Number> row;
  Number inverse = 1;

  normalized_row(numbers<Number> x, bool normalizes) : row(std::move(x)) {
    if (!normalizes) return;
    Number sum = 0;
    for (const Number each : row) sum += each * each;
    inverse = 1 / std::sqrt(sum + static_cast<Number>(1e-6));
    for (Number& each : row) each *= inverse;
  }
  numbers<Number> gradient(const numbers<Number>& d_row, bool normalizes) const {
    if (!normalizes) return d_row;
    Number along = 0;
    for (std::size_t c = 0; c < row.size(); ++c) along += row[c] * d_row[c];
    numbers<Number> d_x(row.size());
    for (std::size_t c = 0; c < row.size(); ++c) d_x[c] = inverse * (d_row[c] - row[c] * along);
    return d_x;
  }
};

/// A log decay and its slopes by the raw gate (and bias) and by A_log.
template <class Number>
struct delta_gate {
  Number log_decay = 0, by_raw = 1, by_log_rate = 0;

  delta_gate(const delta_rule_args& args, const delta_rule_options& options, Number raw,
             std::int64_t head, std::int64_t channel)
      : log_decay(raw) {
    if (!options.use_gate) return;
    const Number rate = std::exp(static_cast<Number>(at(args.A_log, head)));
    const tensor_view& bias = args.dt_bias;
    if (bias.present()) {
      raw += static_cast<Number>(bias.rank == 1 ? at(bias, head) : at(bias, head, channel));
    }
    if (options.gate_lower_bound) {
      const auto bound = static_cast<Number>(*options.gate_lower_bound);
      const Number s = sigmoid_of(rate * raw);
      log_decay = bound * s;
      by_raw = bound * s * (1 - s) * rate;
      by_log_rate = by_raw * raw;
      return;
    }
    log_decay = -rate * (raw > 20 ? raw : std::log1p(std::exp(raw)));
    by_raw = -rate * sigmoid_of(raw);
    by_log_rate = log_decay;
  }
};

/// All of a call, one value head of one sequence after the other.
template <class Number>
class delta_evaluation {
 public:
  delta_evaluation(const delta_rule_args& args, const delta_rule_options& options, bool gradients)
      : args_(args), options_(options) {
    allocate(gradients);
    const std::int64_t heads = args.v.extent[2];
    for (const delta_sequence& tokens : delta_sequences(args.v, args.cu_seqlens)) {
      for (std::int64_t head = 0; head < heads; ++head) evaluate(tokens, head, gradients);
    }
    if (gradients) finish_gradients();
  }

  delta_result result;

 private:
  std::int64_t key_head(std::int64_t head) const {
    return head / (args_.v.extent[2] / args_.q.extent[2]);
  }
  Number scale() const {
    return static_cast<Number>(
        options_.scale.value_or(1 / std::sqrt(static_cast<double>(args_.q.extent[3]))));
  }
  const tensor_view& gates() const { return args_.gk.present() ? args_.gk : args_.g; }

  static void allocate(const tensor_view& view, delta_tensor& to) {
    if (!view.present()) return;
    to.values.assign(static_cast<std::size_t>(view.elements()), 0);
    to.sizes.assign(1, 0);
  }
  void allocate(bool gradients) {
    if (!gradients) {
      allocate(args_.out, result.out);
      allocate(args_.final_state, result.final_state);
      result.out.sizes.clear();
      result.out.sizes.assign(static_cast<std::size_t>(args_.out.elements() / args_.out.extent[3]),
                              0);
      return;
    }
    allocate(args_.d_q, result.d_q), allocate(args_.d_k, result.d_k);
    allocate(args_.d_v, result.d_v), allocate(args_.d_g, result.d_g);
    allocate(args_.d_gk, result.d_gk), allocate(args_.d_beta, result.d_beta);
    allocate(args_.d_A_log, result.d_A_log), allocate(args_.d_dt_bias, result.d_dt_bias);
    allocate(args_.d_initial_state, result.d_initial_state);
    d_query_.assign(result.d_q.values.size(), 0), d_key_.assign(result.d_k.values.size(), 0);
  }

  /// Row-major place of the row of a token and head.
  static std::size_t row_number(const tensor_view& view, std::int64_t entry, std::int64_t token,
                                std::int64_t head) {
    return static_cast<std::size_t>((entry * view.extent[1] + token) * view.extent[2] + head);
  }

  delta_token<Number> token_of(const delta_sequence& tokens, std::int64_t token,
                               std::int64_t head) const {
    const std::int64_t b = tokens.entry;
    delta_token<Number> made;
    const tensor_view& ids = args_.seg_ids;
    if (ids.present()) {
      made.is_padding = at(ids, b, token) < 0;
      if (made.is_padding) return made;
      bool first = true;  // of the tokens that are no padding
      for (std::int64_t t = tokens.begin; t < token; ++t) first = first && at(ids, b, t) < 0;
      made.starts_anew = !first && at(ids, b, token) != at(ids, b, token - 1);
    }
    const bool normalizes = options_.use_qk_l2norm;
    made.query =
        normalized_row<Number>(row_at<Number>(args_.q, b, token, key_head(head)), normalizes).row;
    for (Number& each : made.query) each *= scale();
    made.key =
        normalized_row<Number>(row_at<Number>(args_.k, b, token, key_head(head)), normalizes).row;
    made.value = row_at<Number>(args_.v, b, token, head);
    made.decay.assign(made.key.size(), 1);
    for (std::size_t c = 0; gates().present() && c < made.decay.size(); ++c) {
      made.decay[c] = std::exp(gate_of(b, token, head, static_cast<std::int64_t>(c)).log_decay);
    }
    const auto beta = static_cast<Number>(at(args_.beta, b, token, head));
    made.beta = options_.use_beta_sigmoid ? most_beta() * sigmoid_of(beta) : beta;
    return made;
  }
  Number most_beta() const { return options_.allow_neg_eigval ? 2 : 1; }
  delta_gate<Number> gate_of(std::int64_t entry, std::int64_t token, std::int64_t head,
                             std::int64_t channel) const {
    const double raw = args_.gk.present() ? at(args_.gk, entry, token, head, channel)
                                          : at(args_.g, entry, token, head);
    return {args_, options_, static_cast<Number>(raw), head, channel};
  }

  void evaluate(const delta_sequence& tokens, std::int64_t head, bool gradients) {
    const std::int64_t channels = args_.q.extent[3], columns = args_.v.extent[3];
    delta_head<Number> walk;
    for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
      walk.tokens.push_back(token_of(tokens, t, head));
    }
    walk.forward(state_at<Number>(args_.initial_state, tokens.number, head, channels, columns));
    if (!gradients) return store_forward(tokens, head, walk);
    std::vector<numbers<Number>> d_out;
    for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
      d_out.push_back(row_at<Number>(args_.d_out, tokens.entry, t, head));
    }
    delta_state<Number> d_state =
        state_at<Number>(args_.d_final_state, tokens.number, head, channels, columns);
    const auto of_tokens = walk.backward(d_out, d_state);
    for (std::size_t i = 0; i < of_tokens.size(); ++i) {
      if (walk.tokens[i].is_padding) continue;
      store_gradient(tokens.entry, tokens.begin + static_cast<std::int64_t>(i), head,
                     walk.tokens[i], of_tokens[i]);
    }
    store_state(d_state, tokens.number, head, args_.d_initial_state, result.d_initial_state);
    if (!args_.d_initial_state.present() || of_tokens.empty()) return;
    double& size = result.d_initial_state.sizes[0];
    size = std::max(size, of_tokens.front().state_size);
  }

  void store_forward(const delta_sequence& tokens, std::int64_t head,
                     const delta_head<Number>& walk) {
    for (std::size_t i = 0; i < walk.out.size(); ++i) {
      const std::size_t row =
          row_number(args_.out, tokens.entry, tokens.begin + static_cast<std::int64_t>(i), head);
      const numbers<Number>& values = walk.out[i].value;
      std::copy(values.begin(), values.end(),
                result.out.values.begin() + static_cast<std::ptrdiff_t>(row * values.size()));
      result.out.sizes[row] = walk.out[i].size;
    }
    store_state(walk.states.back(), tokens.number, head, args_.final_state, result.final_state);
  }
  static void store_state(const delta_state<Number>& state, std::int64_t number, std::int64_t head,
                          const tensor_view& view, delta_tensor& to) {
    if (!view.present()) return;
    const auto place = static_cast<std::size_t>(number * view.extent[1] + head) * state.at.size();
    for (std::size_t i = 0; i < state.at.size(); ++i) {
      to.values[place + i] = static_cast<double>(state.at[i]);
      to.sizes[0] = std::max(to.sizes[0], std::fabs(to.values[place + i]));
    }
  }

  static void add(delta_tensor& to, std::size_t place, Number value, double size) {
    if (to.values.empty()) return;
    to.values[place] = static_cast<double>(static_cast<Number>(to.values[place]) + value);
    to.sizes[0] = std::max(to.sizes[0], size);
  }

  void store_gradient(std::int64_t entry, std::int64_t token, std::int64_t head,
                      const delta_token<Number>& of, const delta_token_gradient<Number>& found) {
    const std::size_t channels = of.key.size(), columns = of.value.size();
    const std::size_t row = row_number(args_.v, entry, token, head);
    for (std::size_t j = 0; j < columns; ++j) {
      add(result.d_v, row * columns + j, found.value.value[j], found.value.size);
    }
    const std::size_t of_key = row_number(args_.q, entry, token, key_head(head)) * channels;
    for (std::size_t c = 0; c < channels; ++c) {
      d_query_[of_key + c] += scale() * found.query.value[c];
      d_key_[of_key + c] += found.key.value[c];
    }
    Number by_raw = 1;
    if (options_.use_beta_sigmoid) {
      const Number share = of.beta / most_beta();
      by_raw = most_beta() * share * (1 - share);
    }
    add(result.d_beta, row, by_raw * found.beta.value,
        std::fabs(static_cast<double>(by_raw)) * found.beta.size);
    if (gates().present()) store_gate_gradient(entry, token, head, row, found);
    query_size_ = std::max(query_size_, std::fabs(static_cast<double>(scale())) * found.query.size);
    key_size_ = std::max(key_size_, found.key.size);
  }

  void store_gate_gradient(std::int64_t entry, std::int64_t token, std::int64_t head,
                           std::size_t row, const delta_token_gradient<Number>& found) {
    const std::size_t channels = found.decay.value.size();
    const bool per_channel = args_.gk.present();
    const auto of_head = static_cast<std::size_t>(head);
    for (std::size_t c = 0; c < channels; ++c) {
      const auto gate = gate_of(entry, token, head, static_cast<std::int64_t>(c));
      const Number d_raw = gate.by_raw * found.decay.value[c];
      const double size = std::fabs(static_cast<double>(gate.by_raw)) * found.decay.size *
                          (per_channel ? 1.0 : static_cast<double>(channels));
      add(per_channel ? result.d_gk : result.d_g, per_channel ? row * channels + c : row, d_raw,
          size);
      const bool wide_bias = args_.dt_bias.rank == 2;
      add(result.d_dt_bias, wide_bias ? of_head * channels + c : of_head, d_raw, size);
      add(result.d_A_log, of_head, gate.by_log_rate * found.decay.value[c],
          std::fabs(static_cast<double>(gate.by_log_rate)) * found.decay.size *
              static_cast<double>(channels));
    }
  }

  /// What the value heads of a group add up to, through the norm.
  void finish_gradients() {
    finish_rows(args_.q, d_query_, query_size_, result.d_q);
    finish_rows(args_.k, d_key_, key_size_, result.d_k);
  }
  void finish_rows(const tensor_view& view, const numbers<Number>& d_rows, double size,
                   delta_tensor& to) const {
    const bool normalizes = options_.use_qk_l2norm;
    const auto channels = static_cast<std::size_t>(view.extent[3]);
    std::int64_t rows = view.elements() / view.extent[3];
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t head = row % view.extent[2], token = row / view.extent[2];
      const auto begin = d_rows.begin() + row * view.extent[3];
      const numbers<Number> d_row(begin, begin + view.extent[3]);
      if (std::ranges::all_of(d_row, [](Number each) { return each == 0; })) continue;
      const normalized_row<Number> x(
          row_at<Number>(view, token / view.extent[1], token % view.extent[1], head), normalizes);
      const numbers<Number> d_x = x.gradient(d_row, normalizes);
      for (std::size_t c = 0; c < channels; ++c) {
        to.values[static_cast<std::size_t>(row) * channels + c] = static_cast<double>(d_x[c]);
      }
      to.sizes[0] = std::max(to.sizes[0], static_cast<double>(x.inverse) * size);
    }
  }

  const delta_rule_args& args_;
  const delta_rule_options& options_;
  numbers<Number> d_query_, d_key_;
  double query_size_ = 0, key_size_ = 0;
};

}  // namespace tessera::reference
