#include "forward_call.hpp"

#include <algorithm>

#include <boost/json/object.hpp>

#include <tessera/runtime/operation.hpp>
#include <tessera/spec/lower.hpp>

#include "../execution.hpp"
#include "../failure.hpp"
#include "../json.hpp"
#include "option_json.hpp"

namespace tessera::tool {
namespace {

constexpr std::string_view gradient_suffix = "_backward";

bool takes(const operation& op, std::size_t tensor) {
  return (op.taken >> tensor & 1u) != 0;
}

/// The output of that name, its own or the one that files have; the number of tensors if there is
/// none.
std::size_t output_named(const operation& op, const tensor_form& wanted) {
  const auto tensors = op.form->tensors;
  std::size_t i = 0;
  while (i < tensors.size() && (!takes(op, i) || tensors[i].use != tensor_use::output ||
                                (tensors[i].name != wanted.name &&
                                 tensors[i].name_in_files() != wanted.name_in_files()))) {
    ++i;
  }
  return i;
}

/// The input of that name, which a gradient may not take; null if the file has none.
const tensor_view* input_in(const safetensors_file& file, std::string_view name) {
  const tensor_view* const prefixed = file.tensor("in." + std::string(name));
  return prefixed != nullptr ? prefixed : file.tensor(std::string(name));
}

void set_options(owned_problem& call, const owned_problem& gradient, const safetensors_file& file) {
  const auto set = [&](const boost::json::value& options, bool of_gradient) {
    for (const auto& option : options.get_object()) {
      const std::string_view name(option.key());
      const auto known = [&](const operation& op) {
        const auto forms = op.form->options;
        return std::ranges::find(forms, name, &option_form::name) != forms.end();
      };
      if (!known(*call.op) || known(*gradient.op) != of_gradient) continue;
      set_option_in(*call.op->form, call.options.data(), name, option.value(), "options");
    }
  };
  set(options_json(*gradient.op->form, gradient.options.data()), true);
  const auto written = file.metadata().find("options");
  if (written != file.metadata().end()) set(parse_json(written->second, "options"), false);
}

/// The inputs and options of the forward call: those of the gradient, and what only the file has.
owned_problem forward_problem(const operation& op, const owned_problem& gradient,
                              const safetensors_file& file) {
  owned_problem call(op);
  const auto names = gradient.op->form->tensors;
  for (std::size_t i = 0; i < call.tensors.size(); ++i) {
    if (!takes(op, i) || op.form->tensors[i].use != tensor_use::input) continue;
    const std::string_view name = op.form->tensors[i].name;
    const auto same = static_cast<std::size_t>(std::ranges::find(names, name, &tensor_form::name) -
                                               names.begin());
    if (same < names.size() && takes(*gradient.op, same)) {
      call.tensors[i] = gradient.tensors[same];
    } else if (const tensor_view* const given = input_in(file, name)) {
      call.tensors[i] = *given;
    }
  }
  set_options(call, gradient, file);
  return call;
}

/// Gives the call the outputs that it needs and those that are wanted.
void lay_out_outputs(owned_problem& call, std::uint32_t wanted, output_memory& memory,
                     const std::string& path) {
  bound_call bound{.op = call.op, .tensors = call.tensors.data(), .options = call.options.data()};
  status unfit;
  if (!checks::are_options(bound, unfit) || !checks::are_shapes(bound, ~0u, unfit) ||
      !checks::are_contents(bound, unfit)) {
    refuse_plan(unfit, path);
  }
  for (std::size_t i = 0; i < call.tensors.size(); ++i) {
    const bool needed = ((call.op->required | wanted) >> i & 1u) != 0;
    tensor_view view;
    if (!needed || call.op->form->tensors[i].use != tensor_use::output) continue;
    if (!checks::derive_output(bound, i, view)) continue;
    memory.lay_out(view);
    call.tensors[i] = view;
  }
}

}  // namespace

found_operation gradient_of(const operation& forward) {
  return operation_named(std::string(forward.name) + std::string(gradient_suffix));
}

found_operation forward_of(const operation& gradient) {
  std::string_view name = gradient.name;
  if (!name.ends_with(gradient_suffix)) return {};
  name.remove_suffix(gradient_suffix.size());
  return operation_named(name);
}

bool is_residual(const operation& gradient, std::size_t tensor) {
  const operation* const forward = forward_of(gradient).op;
  const tensor_form& read = gradient.form->tensors[tensor];
  return forward != nullptr && takes(gradient, tensor) && read.use == tensor_use::input &&
         output_named(*forward, read) < forward->form->tensors.size();
}

bool does_without_residuals(owned_problem& gradient) {
  bound_call call{
      .op = gradient.op, .tensors = gradient.tensors.data(), .options = gradient.options.data()};
  status unfit;
  return checks::are_options(call, unfit) && checks::are_shapes(call, ~0u, unfit);
}

void compute_residuals(owned_problem& gradient, std::span<const std::size_t> wanted,
                       const safetensors_file& file, output_memory& memory, const std::string& path,
                       int threads) {
  const found_operation forward = forward_of(*gradient.op);
  owned_problem call = forward_problem(*forward.op, gradient, file);
  const auto answer_to = [&](std::size_t residual) {
    return output_named(*forward.op, gradient.op->form->tensors[residual]);
  };
  std::uint32_t outputs = 0;
  for (const std::size_t residual : wanted) outputs |= 1u << answer_to(residual);
  lay_out_outputs(call, outputs, memory, path);
  const status done = call_operation(*forward.kind, *forward.op, call.tensors.data(),
                                     call.options.data(), {.threads = threads});
  if (!done) refuse_plan(done, path);
  for (const std::size_t residual : wanted) {
    gradient.tensors[residual] = call.tensors[answer_to(residual)];
  }
}

}  // namespace tessera::tool
