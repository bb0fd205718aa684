// The definition of the RWKV-7 operations and of their gradients, and what tests need to know of
// them.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tessera/families/delta_rule/rwkv7_declaration.hpp>

#include "../support/random.hpp"
#include "delta_rule.hpp"
#include "operations.hpp"
#include "pooled_states.hpp"
#include "row_facts.hpp"
#include "store.hpp"

namespace tessera::reference {
namespace {

constexpr std::size_t tensor(std::string_view name) {
  const auto forms = rwkv7_table::form.tensors;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    if (forms[i].name == name) return i;
  }
  throw "no such tensor";
}

/// All of a call, one head of one sequence after the other.
template <class Number>
class rwkv7_evaluation {
 public:
  explicit rwkv7_evaluation(const bound_call& call)
      : args_(*reinterpret_cast<const rwkv7_args*>(call.tensors)),
        options_(call.options_as<rwkv7_options>()),
        is_multiplicative_(call.op->name.starts_with("rwkv7_mul")),
        is_backward_(call.op->name.ends_with("_backward")) {
    for (std::size_t place = 0; place < tensors_.size(); ++place) {
      const tensor_view& view = call.tensors[place];
      if (!call.has(place) || !call.form().tensors[place].is_output()) continue;
      tensors_[place].values.assign(static_cast<std::size_t>(view.elements()), 0);
      const bool by_row = place == tensor("out");
      tensors_[place].sizes.assign(
          by_row ? static_cast<std::size_t>(view.elements() / view.extent[3]) : 1, 0);
    }
    for (const delta_sequence& tokens : delta_sequences(args_.v, args_.cu_seqlens)) {
      for (std::int64_t head = 0; head < args_.v.extent[2]; ++head) evaluate(tokens, head);
    }
  }

  expected_tensors outputs() {
    expected_tensors all;
    for (std::size_t place = 0; place < tensors_.size(); ++place) {
      if (tensors_[place].sizes.empty() && tensors_[place].values.empty()) continue;
      for (double& value : tensors_[place].values) {
        if constexpr (std::is_same_v<Number, float>) {
          const dtype type = tensors_of(args_)[place].type;
          value = static_cast<double>(rounded_to(type, static_cast<float>(value)));
        }
      }
      all.push_back({.tensor = place,
                     .values = std::move(tensors_[place].values),
                     .sizes = std::move(tensors_[place].sizes),
                     .least_share = least_share_of_states});
    }
    return all;
  }

 private:
  delta_token<Number> token_of(std::int64_t entry, std::int64_t token, std::int64_t head) const {
    const auto row = [&](const tensor_view& view) {
      return row_at<Number>(view, entry, token, head);
    };
    delta_token<Number> made{.query = row(args_.r),
                             .key = row(args_.k),
                             .decay = row(args_.w),
                             .value = row(args_.v),
                             .read = row(is_multiplicative_ ? args_.kk : args_.a),
                             .write = row(is_multiplicative_ ? args_.a : args_.b)};
    for (std::size_t c = 0; c < made.key.size(); ++c) {
      made.query[c] *= static_cast<Number>(options_.scale);
      made.decay[c] = std::exp(made.decay[c]);
      if (!is_multiplicative_) continue;
      made.write[c] *= made.read[c];
      made.read[c] = -made.read[c];
    }
    return made;
  }

  /// Of a step: steps count in the order of the recurrence.
  std::int64_t token_number(const delta_sequence& tokens, std::size_t step) const {
    const auto at = static_cast<std::int64_t>(step);
    return options_.reverse ? tokens.end - 1 - at : tokens.begin + at;
  }

  void evaluate(const delta_sequence& tokens, std::int64_t head) {
    const std::int64_t channels = args_.k.extent[3], columns = args_.v.extent[3];
    delta_head<Number> walk;
    const auto length = static_cast<std::size_t>(tokens.end - tokens.begin);
    for (std::size_t step = 0; step < length; ++step) {
      walk.tokens.push_back(token_of(tokens.entry, token_number(tokens, step), head));
    }
    walk.forward(state_at<Number>(args_.initial_state, tokens.number, head, channels, columns));
    if (!is_backward_) {
      for (std::size_t step = 0; step < length; ++step) {
        store_row("out", tokens.entry, token_number(tokens, step), head, walk.out[step]);
      }
      return store_state("final_state", tokens.number, head, walk.states.back());
    }
    std::vector<numbers<Number>> d_out;
    for (std::size_t step = 0; step < length; ++step) {
      d_out.push_back(row_at<Number>(args_.d_out, tokens.entry, token_number(tokens, step), head));
    }
    delta_state<Number> d_state =
        state_at<Number>(args_.d_final_state, tokens.number, head, channels, columns);
    const auto found = walk.backward(d_out, d_state);
    for (std::size_t step = 0; step < length; ++step) {
      store_gradient(tokens.entry, token_number(tokens, step), head, found[step]);
    }
    store_state("d_initial_state", tokens.number, head, d_state);
  }

  void store_gradient(std::int64_t entry, std::int64_t token, std::int64_t head,
                      delta_token_gradient<Number> found) {
    const auto scale = static_cast<Number>(options_.scale);
    for (Number& each : found.query.value) each *= scale;
    found.query.size *= std::fabs(options_.scale);
    store_row("d_r", entry, token, head, found.query);
    store_row("d_w", entry, token, head, found.decay);
    store_row("d_k", entry, token, head, found.key);
    store_row("d_v", entry, token, head, found.value);
    if (!is_multiplicative_) {
      store_row("d_a", entry, token, head, found.read);
      return store_row("d_b", entry, token, head, found.write);
    }
    const auto kk = row_at<Number>(args_.kk, entry, token, head);
    const auto rate = row_at<Number>(args_.a, entry, token, head);
    term_sums<Number> d_kk = found.write, d_rate = found.write;
    double most_kk = 0, most_rate = 0;
    for (std::size_t c = 0; c < kk.size(); ++c) {
      d_kk.value[c] = found.write.value[c] * rate[c] - found.read.value[c];
      d_rate.value[c] = found.write.value[c] * kk[c];
      most_kk = std::max(most_kk, std::fabs(static_cast<double>(kk[c])));
      most_rate = std::max(most_rate, std::fabs(static_cast<double>(rate[c])));
    }
    d_kk.size = found.write.size * most_rate + found.read.size;
    d_rate.size = found.write.size * most_kk;
    store_row("d_kk", entry, token, head, d_kk);
    store_row("d_a", entry, token, head, d_rate);
  }

  void store_row(std::string_view name, std::int64_t entry, std::int64_t token, std::int64_t head,
                 const term_sums<Number>& row) {
    delta_tensor& to = tensors_[tensor(name)];
    const tensor_view& like = args_.v;
    const auto number =
        static_cast<std::size_t>((entry * like.extent[1] + token) * like.extent[2] + head);
    if (to.values.empty()) return;
    for (std::size_t c = 0; c < row.value.size(); ++c) {
      to.values[number * row.value.size() + c] = static_cast<double>(row.value[c]);
    }
    double& size = to.sizes[name == "out" ? number : 0];
    size = std::max(size, row.size);
  }
  void store_state(std::string_view name, std::int64_t number, std::int64_t head,
                   const delta_state<Number>& state) {
    delta_tensor& to = tensors_[tensor(name)];
    const auto place = static_cast<std::size_t>(number * args_.v.extent[2] + head);
    for (std::size_t i = 0; i < state.at.size() && !to.values.empty(); ++i) {
      double& value = to.values[place * state.at.size() + i];
      value = static_cast<double>(state.at[i]);
      to.sizes[0] = std::max(to.sizes[0], std::fabs(value));
    }
  }

  const rwkv7_args& args_;
  const rwkv7_options& options_;
  bool is_multiplicative_, is_backward_;
  std::array<delta_tensor, rwkv7_table::form.tensors.size()> tensors_;
};

template <class Number>
expected_tensors evaluated(const bound_call& call) {
  return rwkv7_evaluation<Number>(call).outputs();
}

/// Decays at most 0, and vectors that read and write of length 1 or less: states that stay bounded.
bool fill(const bound_call& call, std::size_t place, support::random_source& random) {
  const tensor_view& view = call.tensors[place];
  if (place == tensor("w")) {
    const double scale = random.pick({0.0, 0.02, 0.3, 3.0, 40.0});
    for_each_element(view, [&](std::int64_t, std::int64_t offset) {
      store(view, offset, -scale * std::fabs(static_cast<double>(random.bell())));
    });
    return true;
  }
  const bool multiplicative = call.op->name.starts_with("rwkv7_mul");
  if (multiplicative && place == tensor("a")) {
    for_each_element(
        view, [&](std::int64_t, std::int64_t offset) { store(view, offset, random.uniform()); });
    return true;
  }
  if (place != tensor("a") && place != tensor("b") && place != tensor("kk")) return false;
  // `a` and `b` of opposite signs, as models have them: the rank-one part takes from the state, at
  // most a third of it, and neither grows it without bound nor cancels it.
  const double most = 0.6 / std::sqrt(static_cast<double>(view.extent[3]));
  const double sign = place == tensor("a") ? -1 : 1;
  for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
    const double side = flat % view.extent[3] % 2 == 0 ? sign : -sign;
    store(view, offset, side * most * random.uniform());
  });
  return true;
}

std::span<const std::string_view> independent(const bound_call&) {
  static constexpr std::array<std::string_view, 1> heads{"HV"};
  return heads;
}

void count(const bound_call& call, call_work& work) {
  const bool backward = pass_of(static_cast<rwkv7_op>(call.op->place)) == delta_rule_pass::backward;
  work.flops =
      delta_flops(call.tensors[tensor("v")], call.tensors[tensor("r")].extent[3], backward);
}

constexpr operation_reference reference_named(std::string_view op) {
  return {.op = op,
          .exact = &pooled<&evaluated<double>>,
          .as_stored = &pooled<&evaluated<float>>,
          .fill = &fill,
          .rounded_numbers = rounded_by_delta_rule,
          .independent = &independent,
          .count = &count};
}
constexpr std::array table{reference_named("rwkv7"), reference_named("rwkv7_mul"),
                           reference_named("rwkv7_backward"),
                           reference_named("rwkv7_mul_backward")};

}  // namespace

std::span<const operation_reference> rwkv7_references() noexcept {
  return table;
}

}  // namespace tessera::reference
