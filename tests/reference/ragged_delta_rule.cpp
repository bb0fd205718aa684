// The definition of the delta rule over pools of states and of its gradients: the states of the
// sequences that have tokens are those of a packed call of gated_delta_rule (delta_rule.hpp). And
// what tests need to know of the operations.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/families/delta_rule/ragged_v2_declaration.hpp>

#include "../support/random.hpp"
#include "delta_rule.hpp"
#include "operations.hpp"
#include "pooled_states.hpp"
#include "row_facts.hpp"
#include "store.hpp"

namespace tessera::reference {
namespace {

/// A tensor of doubles, row-major.
class doubles {
 public:
  explicit doubles(std::initializer_list<std::int64_t> extent)
      : view_(shaped(dtype::f64, extent)), values_(static_cast<std::size_t>(view_.elements())) {
    view_.stride = contiguous_strides(view_.extent, view_.rank);
  }
  tensor_view view() {
    tensor_view with_memory = view_;
    with_memory.data = values_.data();
    return with_memory;
  }
  std::vector<double>& values() { return values_; }

 private:
  tensor_view view_;
  std::vector<double> values_;
};

/// [T,...] as [1,T,...].
tensor_view as_one_entry(const tensor_view& tokens) {
  if (!tokens.present()) return {};
  tensor_view view = tokens;
  view.rank = static_cast<std::int8_t>(tokens.rank + 1);
  for (std::size_t axis = 1; axis < static_cast<std::size_t>(view.rank); ++axis) {
    view.extent[axis] = tokens.extent[axis - 1];
    view.stride[axis] = tokens.stride[axis - 1];
  }
  view.extent[0] = 1;
  view.stride[0] = 0;
  return view;
}

bool starts_from_zero(const bound_call& call, std::int64_t n) {
  const tensor_view flags = tensor_named(call, "has_initial_state");
  return flags.present() && at(flags, n) == 0;
}
/// States that sequences do not start from become 0.
void clear_unread(const bound_call& call, std::vector<double>& states) {
  const state_pool pool(call);
  const auto size =
      static_cast<std::int64_t>(states.size()) / std::max<std::int64_t>(pool.sequences(), 1);
  for (std::int64_t n = 0; n < pool.sequences(); ++n) {
    if (starts_from_zero(call, n)) std::fill_n(states.begin() + n * size, size, 0.0);
  }
}

/// A call as one of gated_delta_rule; tensors of its own where the call has them in another form.
struct dense_call {
  delta_rule_args args{};
  delta_rule_options options{};
  std::vector<doubles> own{};
};

void add_pool(const bound_call& call, bool backward, dense_call& dense) {
  const state_pool states(call);
  const auto add = [&](const tensor_view& pool, bool starts) {
    doubles own{states.sequences(), pool.extent[1], pool.extent[2], pool.extent[3]};
    own.values() = states.gathered(pool);
    if (starts) clear_unread(call, own.values());
    dense.own.push_back(std::move(own));
    return dense.own.back().view();
  };
  dense.args.initial_state = add(tensor_named(call, "state_pool"), true);
  dense.args.cu_seqlens = tensor_named(call, "cu_seqlens");
  if (!backward) {
    dense.args.final_state = dense.args.initial_state;  // its shape
    return;
  }
  const tensor_view d_pool = tensor_named(call, "d_state_pool");
  if (!d_pool.present()) return;
  dense.args.d_final_state = add(d_pool, false);
  dense.args.d_initial_state = dense.args.d_final_state;
}

dense_call dense_of(const ragged_delta_rule_args& args, const delta_rule_options& options) {
  return {.args = {.q = as_one_entry(args.q),
                   .k = as_one_entry(args.k),
                   .v = as_one_entry(args.v),
                   .g = as_one_entry(args.g),
                   .beta = as_one_entry(args.beta),
                   .A_log = args.A_log,
                   .dt_bias = args.dt_bias,
                   .out = as_one_entry(args.out),
                   .d_out = as_one_entry(args.d_out),
                   .d_q = as_one_entry(args.d_q),
                   .d_k = as_one_entry(args.d_k),
                   .d_v = as_one_entry(args.d_v),
                   .d_g = as_one_entry(args.d_g),
                   .d_beta = as_one_entry(args.d_beta),
                   .d_A_log = args.d_A_log,
                   .d_dt_bias = args.d_dt_bias},
          .options = options};
}

double silu(double x) {
  return x * sigmoid_of(x);
}
double slope_of_silu(double x) {
  const double s = sigmoid_of(x);
  return s * (1 + x * (1 - s));
}

/// Where q, k and v lie among the columns of a token.
struct column_parts {
  std::int64_t key_heads, value_heads, key_dim, value_dim;

  explicit column_parts(const bound_call& call) {
    const tensor_view pool = tensor_named(call, "state_pool");
    const auto said = call.options_as<ragged_delta_rule_v2_options>().num_qk_heads;
    value_heads = pool.extent[1], key_dim = pool.extent[2], value_dim = pool.extent[3];
    key_heads = said > 0 ? said : value_heads;
  }
  std::int64_t key_columns() const { return key_heads * key_dim; }
};

dense_call dense_of(const bound_call& call, const ragged_delta_rule_v2_args& args,
                    const ragged_delta_rule_v2_options& options) {
  dense_call dense{.args = {.g = as_one_entry(args.a),
                            .beta = as_one_entry(args.b),
                            .A_log = args.A_log,
                            .dt_bias = args.dt_bias,
                            .out = as_one_entry(args.out),
                            .d_out = as_one_entry(args.d_out),
                            .d_g = as_one_entry(args.d_a),
                            .d_beta = as_one_entry(args.d_b),
                            .d_A_log = args.d_A_log,
                            .d_dt_bias = args.d_dt_bias},
                   .options = {.scale = options.scale,
                               .use_qk_l2norm = options.use_qk_l2norm,
                               .use_gate = true,
                               .use_beta_sigmoid = true}};
  const column_parts parts(call);
  const std::int64_t tokens = args.mixed_qkv.extent[0];
  const auto part = [&](std::int64_t first, std::int64_t heads, std::int64_t width) {
    doubles rows{1, tokens, heads, width};
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t c = 0; c < heads * width; ++c) {
        const double x = at(args.mixed_qkv, t, first + c);
        rows.values()[static_cast<std::size_t>(t * heads * width + c)] =
            options.apply_silu ? silu(x) : x;
      }
    }
    dense.own.push_back(std::move(rows));
    return dense.own.back().view();
  };
  dense.args.q = part(0, parts.key_heads, parts.key_dim);
  dense.args.k = part(parts.key_columns(), parts.key_heads, parts.key_dim);
  dense.args.v = part(2 * parts.key_columns(), parts.value_heads, parts.value_dim);
  if (args.d_mixed_qkv.present()) {  // their shapes
    dense.args.d_q = dense.args.q, dense.args.d_k = dense.args.k, dense.args.d_v = dense.args.v;
  }
  return dense;
}

bool is_v2(const bound_call& call) {
  return call.op->form == &ragged_delta_rule_v2_table::form ||
         call.op->form == &ragged_delta_rule_v2_table::backward_form;
}
bool is_backward(const bound_call& call) {
  return call.op->name.ends_with("_backward");
}
dense_call dense_of(const bound_call& call) {
  dense_call dense =
      is_v2(call)
          ? dense_of(call, *reinterpret_cast<const ragged_delta_rule_v2_args*>(call.tensors),
                     call.options_as<ragged_delta_rule_v2_options>())
          : dense_of(*reinterpret_cast<const ragged_delta_rule_args*>(call.tensors),
                     call.options_as<delta_rule_options>());
  add_pool(call, is_backward(call), dense);
  return dense;
}

/// The gradients of q, k and v as columns of a token.
delta_tensor joined_columns(const bound_call& call, const delta_result& found) {
  const tensor_view mixed = tensor_named(call, "mixed_qkv");
  const column_parts parts(call);
  const bool activates = call.options_as<ragged_delta_rule_v2_options>().apply_silu;
  delta_tensor joined{std::vector<double>(static_cast<std::size_t>(mixed.elements())), {0.0}};
  std::int64_t first = 0;
  for (const delta_tensor* part : {&found.d_q, &found.d_k, &found.d_v}) {
    const std::int64_t width =
        part == &found.d_v ? parts.value_heads * parts.value_dim : parts.key_columns();
    for (std::int64_t t = 0; t < mixed.extent[0]; ++t) {
      for (std::int64_t c = 0; c < width; ++c) {
        double value = part->values[static_cast<std::size_t>(t * width + c)];
        if (activates && value != 0) value *= slope_of_silu(at(mixed, t, first + c));
        joined.values[static_cast<std::size_t>(t * mixed.extent[1] + first + c)] = value;
      }
    }
    joined.sizes[0] = std::max(joined.sizes[0], part->sizes.empty() ? 0.0 : part->sizes[0]);
    first += width;
  }
  return joined;
}

/// Results of a call in a precision; rounded to the types of the tensors where that is float.
template <class Number>
expected_tensors evaluated(const bound_call& call) {
  const dense_call dense = dense_of(call);
  delta_result found =
      delta_evaluation<Number>(dense.args, dense.options, is_backward(call)).result;
  delta_tensor columns;
  if (is_v2(call) && is_backward(call)) columns = joined_columns(call, found);
  const bool names_v2 = is_v2(call);
  expected_tensors outputs;
  for (std::size_t place = 0; place < call.form().tensors.size(); ++place) {
    const std::string_view name = call.form().tensors[place].name;
    if (!call.has(place) || !call.form().tensors[place].is_output()) continue;
    expected_tensor output;
    output.tensor = place;
    if (name.ends_with("state_pool")) {
      delta_tensor& states = is_backward(call) ? found.d_initial_state : found.final_state;
      const tensor_view& pool = call.tensors[place];
      if (is_backward(call)) clear_unread(call, states.values);
      output.values = to_doubles(pool);
      state_pool(call).scatter(states.values, pool, output.values);
      output.sizes.assign(output.values.size(), 0.0);
      state_pool(call).scatter(
          std::vector<double>(states.values.size(), states.sizes.empty() ? 0.0 : states.sizes[0]),
          pool, output.sizes);
    } else {
      delta_tensor* const from = name == "out"                           ? &found.out
                                 : name == "d_mixed_qkv"                 ? &columns
                                 : name == "d_q"                         ? &found.d_q
                                 : name == "d_k"                         ? &found.d_k
                                 : name == "d_v"                         ? &found.d_v
                                 : name == "d_A_log"                     ? &found.d_A_log
                                 : name == "d_dt_bias"                   ? &found.d_dt_bias
                                 : name == (names_v2 ? "d_b" : "d_beta") ? &found.d_beta
                                                                         : &found.d_g;
      output.values = std::move(from->values);
      output.sizes = std::move(from->sizes);
    }
    if constexpr (std::is_same_v<Number, float>) {
      for (double& value : output.values) {
        value =
            static_cast<double>(rounded_to(call.tensors[place].type, static_cast<float>(value)));
      }
    }
    outputs.push_back(std::move(output));
  }
  return outputs;
}

void fill_with(const tensor_view& view, const auto& value) {
  for_each_element(view, [&](std::int64_t, std::int64_t offset) { store(view, offset, value()); });
}

/// Keys of length 1 or less where nothing makes them so.
bool fill_columns(const bound_call& call, const tensor_view& view, support::random_source& random) {
  if (call.options_as<ragged_delta_rule_v2_options>().use_qk_l2norm) return false;
  const column_parts parts(call);
  const double scale = 0.28 / std::sqrt(static_cast<double>(parts.key_dim));
  for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
    const std::int64_t column = flat % view.extent[1] - parts.key_columns();
    const bool is_key = column >= 0 && column < parts.key_columns();
    store(view, offset, (is_key ? scale : 1.0) * static_cast<double>(random.bell()));
  });
  return true;
}

/// Decays at most 0, beta between 0 and 1, keys of length 1 or less: states that stay bounded.
bool fill(const bound_call& call, std::size_t place, support::random_source& random) {
  const std::string_view name = call.form().tensors[place].name;
  const tensor_view& view = call.tensors[place];
  if (name == "has_initial_state") {
    fill_with(view, [&] { return random.pick({0.0, 1.0, 1.0, -1.0}); });
    return true;
  }
  if (is_v2(call)) return name == "mixed_qkv" && fill_columns(call, view, random);
  const auto& wanted = call.options_as<delta_rule_options>();
  if (name == "g" && !wanted.use_gate) {
    const double scale = random.pick({0.0, 0.02, 0.3, 3.0, 40.0});
    fill_with(view, [&] { return -scale * std::fabs(static_cast<double>(random.bell())); });
    return true;
  }
  if (name == "beta" && !wanted.use_beta_sigmoid) {
    fill_with(view, [&] { return random.chance(0.05) ? 0.0 : random.uniform(); });
    return true;
  }
  if (name != "k" || wanted.use_qk_l2norm) return false;
  const double scale = 0.28 / std::sqrt(static_cast<double>(view.extent[2]));
  fill_with(view, [&] { return scale * static_cast<double>(random.bell()); });
  return true;
}

/// A state that a sequence does not start from is not read.
void mark_seen(const bound_call& call, seen_tensors seen) {
  const state_pool states(call);
  const auto tensors = call.form().tensors;
  for (std::size_t place = 0; place < tensors.size(); ++place) {
    if (tensors[place].name != "state_pool") continue;
    const tensor_view& pool = call.tensors[place];
    std::vector<bool> is_read(static_cast<std::size_t>(pool.extent[0]), false);
    for (std::int64_t n = 0; n < states.sequences(); ++n) {
      if (states.has_tokens(n) && !starts_from_zero(call, n)) {
        is_read[static_cast<std::size_t>(states.slot(n))] = true;
      }
    }
    seen[place] = seen_elements(pool);
    const std::int64_t size = pool.extent[1] * pool.extent[2] * pool.extent[3];
    for_each_element(pool, [&](std::int64_t flat, std::int64_t offset) {
      if (is_read[static_cast<std::size_t>(flat / size)]) seen[place].mark(offset);
    });
  }
}

constexpr operation_reference reference_named(std::string_view op) {
  return {.op = op,
          .exact = &evaluated<double>,
          .as_stored = &evaluated<float>,
          .fill = &fill,
          .mark_seen = &mark_seen,
          .row_extent = &key_dim_of_chunks,
          .rounded_numbers = rounded_by_delta_rule};
}
constexpr std::array table{reference_named("ragged_gated_delta_rule"),
                           reference_named("ragged_gated_delta_rule_backward"),
                           reference_named("ragged_gated_delta_rule_v2"),
                           reference_named("ragged_gated_delta_rule_v2_backward")};

}  // namespace

std::span<const operation_reference> ragged_delta_rule_references() noexcept {
  return table;
}

}  // namespace tessera::reference
