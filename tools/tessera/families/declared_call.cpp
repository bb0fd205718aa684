#include "declared_call.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tessera/runtime/operation.hpp>
#include <tessera/spec/lower.hpp>

#include "../execution.hpp"
#include "../json.hpp"
#include "declared_plan.hpp"
#include "forward_call.hpp"
#include "option_json.hpp"
#include "output_memory.hpp"
#include "tests/reference/elements.hpp"
#include "tests/reference/operations.hpp"
#include "tests/reference/store.hpp"
#include "tests/support/file_answers.hpp"

namespace tessera::tool {
namespace {

class declared_call final : public file_call {
 public:
  declared_call(const tessera::family& kind, const operation& op, std::string path,
                safetensors_file file)
      : file_call(std::move(path), std::move(file)), kind_(kind), call_(op) {
    read_options();
    read_tensors();
  }

  std::string_view op() const override { return call_.op->name; }
  std::string problem() const override { return text_of(call_.view()); }
  dtype operand_type() const override { return reference::operand_type(*call_.op, call_.tensors); }
  reference::call_work work() const override { return reference::work_of(call_.view()); }
  boost::json::value options() const override { return options_json(form(), call_.options.data()); }

  void set_option(std::string_view name, const boost::json::value& value,
                  const std::string& subject) override {
    set_option_in(form(), call_.options.data(), name, value, subject);
    if (name == type_option && std::ranges::count(form().remarks, type_option) > 0) {
      wished_ = type_in(*std::ranges::find(form().tensors, typed_output, &tensor_form::name), name,
                        value, subject);
    }
    forget_residuals();
  }

  /// Every output that the file has an answer to, of its shape, and those whose shape follows and
  /// that the options allow; a copy of what is also read, where the file has it.
  void allocate_outputs(const execution_flags& flags) override {
    memory_.clear(path());
    complete_residuals(flags.threads);
    bound_call call;
    status unfit;
    if (!fits(call, true, unfit) && !fits(call, false, unfit)) refuse_plan(unfit, path());
    for (std::size_t i = 0; i < call_.tensors.size(); ++i) {
      if (!is_output(i)) continue;
      tensor_view view = call_.tensors[i];
      if (!view.present() && (is_input(i) || !derive(call, i, view))) continue;
      if (!support::may_have(form().tensors[i], call_.tensors, view.type)) continue;
      memory_.lay_out(view);
      if (given_[i].present()) {
        std::memcpy(view.data, given_[i].data,
                    static_cast<std::size_t>(view.elements()) * size_of(view.type));
        view.read_only = false;
      }
      call_.tensors[i] = view;
    }
  }

  std::vector<safetensors_entry> outputs() const override {
    std::vector<safetensors_entry> entries;
    for (std::size_t i = 0; i < call_.tensors.size(); ++i) {
      if (!is_output(i) || !call_.tensors[i].present()) continue;
      entries.push_back(
          {fmt::format("out.{}", form().tensors[i].name_in_files()), call_.tensors[i]});
    }
    return entries;
  }

  std::unique_ptr<planned_call> plan(const execution_flags& flags) const override {
    const device_id device = device_of_backend(flags.backend);
    const owned_problem problem = problem_on(device);
    if (device.kind == device_kind::cpu) {
      return std::make_unique<host_plan>(
          plan_for(kind_, problem.view(), flags, device, nullptr, path()), call_.tensors);
    }
    device_stream stream = open_stream(device, path());
    operation_plan plan = plan_for(kind_, problem.view(), flags, device, stream.handle(), path());
    auto planned =
        std::make_unique<gpu_plan>(std::move(stream), std::move(plan), call_.tensors.size());
    for (std::size_t i = 0; i < call_.tensors.size(); ++i) {
      planned->bring(i, call_.tensors[i], is_output(i), path());
    }
    return planned;
  }

  result<explanation> explain(const execution_flags& flags) const override {
    const device_id device = device_of_backend(flags.backend);
    const owned_problem problem = problem_on(device);
    return explain_operation(kind_, problem.view(), {.threads = flags.threads, .device = device});
  }

 private:
  const signature& form() const { return *call_.op->form; }
  bool is_output(std::size_t tensor) const {
    return (call_.op->taken >> tensor & 1u) != 0 && form().tensors[tensor].is_output();
  }
  bool is_input(std::size_t tensor) const {
    return (call_.op->taken >> tensor & 1u) != 0 &&
           form().tensors[tensor].use != tensor_use::output;
  }

  /// Whether a file's input of that name is for the operation whose gradients these are.
  bool is_of_forward(std::string_view name) const {
    const auto written = file().metadata().find("op");
    return written != file().metadata().end() && !call_.op->is_called(written->second) &&
           std::ranges::count(form().tensors, name, &tensor_form::name) > 0;
  }

  /// Whether a file's input of that name is the tensor.
  bool reads(std::size_t tensor, std::string_view name) const {
    const tensor_form& known = form().tensors[tensor];
    return is_input(tensor) && (known.name == name || known.name_in_files() == name);
  }

  /// The problem of the tensors where they will lie: copies on a GPU start at multiples of 256
  /// bytes and keep their strides.
  owned_problem problem_on(device_id device) const {
    owned_problem problem(call_.view());
    if (device.kind == device_kind::cpu) return problem;
    for (std::size_t i = 0; i < call_.tensors.size(); ++i) {
      tensor_view there = call_.tensors[i];
      there.data = nullptr;
      const bool counts = form().tensors[i].aligned_rows && there.present();
      problem.unaligned |= counts && !rows_are_aligned(there);
    }
    return problem;
  }

  void read_options() {
    const auto known = file().metadata().find("options");
    if (known == file().metadata().end()) return;
    const std::string subject = path() + ": metadata key \"options\"";
    const boost::json::value value = parse_json(known->second, subject);
    if (!value.is_object()) throw failure(subject + " is not a JSON object: " + json_line(value));
    for (const auto& option : value.get_object()) {
      set_option(std::string_view(option.key()), option.value(), subject);
    }
  }

  void read_tensors() {
    for (const safetensors_entry& entry : file().entries()) {
      std::string_view name = entry.name;
      const bool answer =
          name.starts_with("out.") || name.starts_with("out2.") || name.starts_with("ref.");
      if (name.starts_with("in.")) name.remove_prefix(3);
      std::size_t tensor = 0;
      while (tensor < call_.tensors.size() && !reads(tensor, name)) ++tensor;
      const bool taken = tensor < call_.tensors.size();
      if (answer || (!taken && (name.starts_with("d_") || is_of_forward(name)))) continue;
      if (!taken) {
        throw failure(fmt::format("{}: tensor \"{}\" is not an argument of {}, known are {}",
                                  path(), entry.name, op(), fmt::join(input_names(~0u), ", ")));
      }
      if (call_.tensors[tensor].present()) {
        throw failure(fmt::format("{}: tensor {} comes 2 times, as \"{}\" and as \"in.{}\"", path(),
                                  name, name, name));
      }
      call_.tensors[tensor] = entry.tensor;
    }
    given_ = call_.tensors;
    for (std::size_t i = 0; i < given_.size(); ++i) {
      if (!is_output(i)) given_[i] = {};
    }
    read_residuals();
    const std::uint32_t needed = required_inputs();
    for (std::size_t i = 0; i < call_.tensors.size(); ++i) {
      if ((needed >> i & 1u) == 0 || call_.tensors[i].present()) continue;
      throw failure(fmt::format("{}: tensor {} is missing ({} tensors in the file), {} needs {}",
                                path(), form().tensors[i].name, file().entries().size(), op(),
                                fmt::join(input_names(needed), ", ")));
    }
  }

  /// Whether the tensors fit together, with the outputs that the file gives or, if `answered`, has
  /// answers to; `call` is what the checks find out, `unfit` what is wrong.
  bool fits(bound_call& call, bool answered, status& unfit) {
    for (std::size_t i = 0; i < call_.tensors.size(); ++i) {
      if (!is_output(i)) continue;
      call_.tensors[i] = given_[i];
      if (answered && !given_[i].present()) call_.tensors[i] = answer_of(i);
    }
    call = {.op = call_.op, .tensors = call_.tensors.data(), .options = call_.options.data()};
    const std::uint32_t outputs = ~0u;
    if (!checks::are_options(call, unfit)) return false;
    if (!checks::are_shapes(call, outputs, unfit) &&
        !(give_typed_output(call) && checks::are_shapes(call, outputs, unfit))) {
      return false;
    }
    if (!checks::are_contents(call, unfit)) return false;
    // Dims of outputs that no input has, where they follow from options.
    for (std::size_t dim = 0; dim < form().dims.size(); ++dim) {
      if (call.owners[dim] < 0) static_cast<void>(checks::follows(call, dim));
    }
    return true;
  }

  /// An output that the file says nothing of: of the only type that it may have, else of the type
  /// of the operands, else of the first with which the call is a legal one.
  bool derive(bound_call& call, std::size_t tensor, tensor_view& view) {
    for (const dtype wish :
         {type_wish(tensor), dtype::none, operand_type(), dtype::f32, dtype::bf16, dtype::u8}) {
      if (checks::derive_output(call, tensor, view, wish) && is_legal_with(call, tensor, view)) {
        return true;
      }
    }
    return false;
  }

  /// Whether the call may have that output, beside those that are like it.
  bool is_legal_with(bound_call& call, std::size_t tensor, const tensor_view& view) {
    const std::vector<tensor_view> before = call_.tensors;
    const auto give = [&](std::size_t output, tensor_view shape) {
      checks::lay_out(shape);
      call_.tensors[output] = shape;
    };
    give(tensor, view);
    for (std::size_t i = 0; i < call_.tensors.size(); ++i) {
      tensor_view alike;
      if (is_output(i) && !is_input(i) && form().tensors[i].like == static_cast<int>(tensor) &&
          !call_.tensors[i].present() && checks::derive_output(call, i, alike)) {
        give(i, alike);
      }
    }
    bound_call with = call;
    status unfit;
    const bool legal = checks::are_shapes(with, ~0u, unfit);
    std::ranges::copy(before, call_.tensors.begin());
    return legal;
  }

  /// The type that an option names for what is computed, which the library reads off the tensor.
  /// Where nobody names one, that of the source's own answer or, without a source, f32.
  dtype type_wish(std::size_t tensor) const {
    const bool has_option = std::ranges::count(form().remarks, type_option) > 0;
    if (!has_option || form().tensors[tensor].name != typed_output) return dtype::none;
    if (wished_ != dtype::none) return wished_;
    const tensor_view* const source = file().tensor(fmt::format("out.{}", typed_output));
    if (source == nullptr) return dtype::f32;
    return form().tensors[tensor].types.has(source->type) ? source->type : dtype::none;
  }

  /// Gives a call the output that an option names the type of, if it has none: what else it may
  /// have can depend on that. `call` is as the checks left it.
  bool give_typed_output(bound_call& call) {
    for (std::size_t i = 0; wished_ != dtype::none && i < call_.tensors.size(); ++i) {
      if (!is_output(i) || call_.tensors[i].present() || type_wish(i) == dtype::none) continue;
      tensor_view view;
      if (!checks::derive_output(call, i, view, wished_)) continue;
      checks::lay_out(view);
      call_.tensors[i] = view;
      return true;
    }
    return false;
  }

  dtype type_of_answer(std::size_t tensor) const {
    if (const dtype wish = type_wish(tensor); wish != dtype::none) return wish;
    return support::type_of_answer(file(), form(), call_.tensors, tensor, operand_type());
  }

  /// An output of the shape of its answer.
  tensor_view answer_of(std::size_t tensor) const {
    const std::string name(form().tensors[tensor].name_in_files());
    const tensor_view* const truth = file().tensor("ref." + name);
    if (truth == nullptr) return {};
    tensor_view view = *truth;
    view.type = type_of_answer(tensor);
    // A view of nothing: memory comes when everything fits.
    checks::lay_out(view);
    view.read_only = false;
    return view;
  }

  /// Whether the call computes what files know by that name.
  bool computes(std::string_view name) const {
    for (std::size_t i = 0; i < call_.tensors.size(); ++i) {
      if (is_output(i) && form().tensors[i].name_in_files() == name) return true;
    }
    return false;
  }

  /// What a gradient takes from the forward call, if the file has it as an answer: in the type of a
  /// call.
  void read_residuals() {
    answers_.clear(path());
    for (std::size_t i = 0; i < call_.tensors.size(); ++i) {
      const tensor_form& tensor = form().tensors[i];
      const bool needed =
          is_input(i) && ((call_.op->required >> i & 1u) != 0 || is_residual(*call_.op, i));
      if (!needed || call_.tensors[i].present()) continue;
      const std::string name(tensor.name_in_files());
      const tensor_view* const answer = file().tensor("ref." + name);
      if (answer == nullptr || computes(name)) continue;
      tensor_view view = *answer;
      view.type = type_of_answer(i);
      if (view.type == dtype::none) continue;
      answers_.lay_out(view);
      answered_.push_back(i);
      const std::vector<double> values = reference::to_doubles(*answer);
      for (std::size_t at = 0; at < values.size(); ++at) {
        reference::store(view, static_cast<std::int64_t>(at), values[at]);
      }
      call_.tensors[i] = view;
    }
  }

  /// Computes what a gradient takes from the forward call and the file does not have.
  void complete_residuals(int threads) {
    if (!computed_.empty()) return;
    bound_call call{
        .op = call_.op, .tensors = call_.tensors.data(), .options = call_.options.data()};
    status unfit;
    static_cast<void>(checks::are_present(call, ~0u, unfit));
    const std::uint32_t spared = does_without_residuals(call_) ? ~call_.op->required : 0;
    for (std::size_t i = 0; i < call_.tensors.size(); ++i) {
      if (call.has(i) || (spared >> i & 1u) != 0 || !is_residual(*call_.op, i)) continue;
      if (checks::forbidding_rule(call, 1u << i) == nullptr) computed_.push_back(i);
    }
    if (computed_.empty()) return;
    residuals_.clear(path());
    compute_residuals(call_, computed_, file(), residuals_, path(), threads);
  }

  /// Another option may make others of them, of the file's answers too.
  void forget_residuals() {
    for (std::vector<std::size_t>* const known : {&computed_, &answered_}) {
      for (const std::size_t tensor : *known) call_.tensors[tensor] = {};
      known->clear();
    }
  }

  bool is_in_every_layout(std::size_t tensor) const {
    for (int layout = 0; layout < static_cast<int>(form().layouts.size()); ++layout) {
      if (form().shape(tensor, layout).rank < 0) return false;
    }
    return true;
  }

  /// A gradient that is written has the shape of the tensor it belongs to. What only some layouts
  /// need is for the checks to miss, what the forward call gives is computed.
  std::uint32_t required_inputs() const {
    std::uint32_t needed = 0;
    for (std::size_t i = 0; i < call_.tensors.size(); ++i) {
      if ((call_.op->required >> i & 1u) == 0) continue;
      const std::int8_t shape_of = form().tensors[i].gradient_of;
      if (is_input(i) && is_in_every_layout(i) && !is_residual(*call_.op, i)) needed |= 1u << i;
      if (form().tensors[i].is_output() && shape_of >= 0 && is_in_every_layout(i)) {
        needed |= 1u << shape_of;
      }
    }
    return needed;
  }

  std::vector<std::string_view> input_names(std::uint32_t among) const {
    std::vector<std::string_view> names;
    for (std::size_t i = 0; i < call_.tensors.size(); ++i) {
      if (is_input(i) && (among >> i & 1u) != 0) names.push_back(form().tensors[i].name);
    }
    return names;
  }

  static constexpr std::string_view type_option = "out_dtype", typed_output = "out";

  const tessera::family& kind_;
  dtype wished_ = dtype::none;         ///< what `type_option` says
  owned_problem call_;                 ///< with the memory of its tensors
  std::vector<tensor_view> given_;     ///< outputs that are read too, as the file has them
  std::vector<std::size_t> computed_;  ///< tensors that the forward call was asked for
  std::vector<std::size_t> answered_;  ///< those that the file's answers gave
  output_memory memory_, residuals_, answers_;
};

}  // namespace

std::unique_ptr<file_call> open_declared(const tessera::family& kind, const operation& op,
                                         std::string path, safetensors_file file) {
  return std::make_unique<declared_call>(kind, op, std::move(path), std::move(file));
}

}  // namespace tessera::tool
