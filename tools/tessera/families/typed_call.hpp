// The interfaces of families.hpp over the types of one family. A family describes itself to the
// commands with a struct of types and static functions:
//
// | member | what |
// |---|---|
// | runtime_family | its struct in tessera/runtime |
// | op_type, options_type | enumeration of its operations; their options |
// | takes(op, name) | a tensor of that name is an input of the operation |
// | is_output(op, name) | a tensor of that name is an output of the operation |
// | is_gradient(name) | incoming gradients, which operations that do not take them pass over |
// | required(op) | inputs that must be there |
// | allocate(op, options, args, memory) | gives the outputs memory, if their shapes can be told |
// | operand_type(args) | what tolerances depend on |
// | work_of(op, args, options) | what a call costs on paper |
// | backward_of(op) | the operation of the gradient; none: no value |
// | json_of(member) | members of a config that are neither numbers nor enumerators |
// | remark(rows) | what the rows of a listing have in common; may be empty |
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <tessera/spec/reflect.hpp>

#include "../command.hpp"
#include "../execution.hpp"
#include "../families.hpp"
#include "../json.hpp"
#include "options.hpp"
#include "output_memory.hpp"
#include "typed_plan.hpp"

namespace tessera::tool {

template <class Described>
class typed_call final : public file_call {
 public:
  using family_type = typename Described::runtime_family;
  using args_type = typename family_type::args_type;
  using op_type = typename Described::op_type;
  using options_type = typename Described::options_type;

  typed_call(std::string path, safetensors_file file, op_type op)
      : file_call(std::move(path), std::move(file)), op_(op) {
    read_options();
    read_tensors();
  }

  std::string_view op() const override { return name_of(op_); }
  std::string problem() const override { return family_type::text_of(typed_problem({})); }
  dtype operand_type() const override { return Described::operand_type(args_); }
  call_work work() const override { return Described::work_of(op_, args_, options_); }
  boost::json::value options() const override { return options_json(options_); }

  void set_option(std::string_view name, const boost::json::value& value,
                  const std::string& subject) override {
    set_option_in(options_, name, value, subject);
  }

  void allocate_outputs() override {
    memory_.clear(path());
    Described::allocate(op_, options_, args_, memory_);
  }

  std::vector<safetensors_entry> outputs() const override {
    std::vector<safetensors_entry> entries;
    for_each_member(args_, [&](std::string_view name, const tensor_view& view) {
      if (Described::is_output(op_, name) && view.present()) {
        entries.push_back({fmt::format("out.{}", name), view});
      }
    });
    return entries;
  }

  std::unique_ptr<planned_call> plan(const execution_flags& flags) const override {
    const device_id device = device_of_backend(flags.backend);
    const auto problem = typed_problem(device);
    if (device.kind == device_kind::cpu) {
      auto made = plan_for(problem, flags, device, nullptr, path());
      using plan_type = decltype(made);
      return std::make_unique<host_plan<plan_type, args_type>>(std::move(made), args_);
    }
    device_stream stream = open_stream(device, path());
    auto made = plan_for(problem, flags, device, stream.handle(), path());
    using plan_type = decltype(made);
    auto planned =
        std::make_unique<gpu_plan<plan_type, args_type>>(std::move(stream), std::move(made));
    for_each_member(args_, [&](std::string_view name, const tensor_view& view) {
      planned->bring(name, view, Described::is_output(op_, name), path());
    });
    return planned;
  }

  result<explanation> explain(const execution_flags& flags) const override {
    const device_id device = device_of_backend(flags.backend);
    return tessera::explain(typed_problem(device), {.threads = flags.threads, .device = device});
  }

 private:
  /// The problem of the tensors where they will lie: copies on a GPU start at multiples of 256
  /// bytes.
  typename family_type::problem_type typed_problem(device_id device) const {
    args_type there = args_;
    for_each_member(there, [&](std::string_view, tensor_view& view) {
      if (device.kind == device_kind::cpu || !view.present()) return;
      view.device = device;
      view.data = nullptr;
    });
    return problem_of(there, options_, op_);
  }

  void read_options() {
    const auto found = file().metadata().find("options");
    if (found == file().metadata().end()) return;
    const std::string subject = path() + ": metadata key \"options\"";
    const boost::json::value value = parse_json(found->second, subject);
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
      const bool taken = Described::takes(op_, name);
      if (answer || (!taken && Described::is_gradient(name))) continue;
      if (!taken) {
        throw failure(fmt::format("{}: tensor \"{}\" is not an argument of {}, known are {}",
                                  path(), entry.name, op(), input_list()));
      }
      for_each_member(args_, [&](std::string_view member, tensor_view& view) {
        if (member == name) read_tensor(name, entry.tensor, view);
      });
    }
    for_each_member(args_, [&](std::string_view name, const tensor_view& view) {
      const auto& needed = Described::required(op_);
      const bool missing = std::find(needed.begin(), needed.end(), name) != needed.end();
      if (!missing || view.present()) return;
      throw failure(fmt::format("{}: tensor {} is missing ({} tensors in the file), {} needs {}",
                                path(), name, file().entries().size(), op(),
                                fmt::join(needed, ", ")));
    });
  }

  void read_tensor(std::string_view name, const tensor_view& given, tensor_view& view) const {
    if (view.present()) {
      throw failure(fmt::format("{}: tensor {} comes 2 times, as \"{}\" and as \"in.{}\"", path(),
                                name, name, name));
    }
    view = given;
  }

  std::string input_list() const {
    std::string list;
    for_each_member(args_, [&](std::string_view name, const tensor_view&) {
      if (!Described::takes(op_, name)) return;
      if (!list.empty()) list += ", ";
      list += name;
    });
    return list;
  }

  op_type op_;
  options_type options_{};
  args_type args_{};
  output_memory memory_;
};

template <class Described>
class typed_family final : public family {
 public:
  using family_type = typename Described::runtime_family;

  std::string_view name() const override { return family_type::name; }
  std::span<const std::string_view> ops() const override { return family_type::ops; }
  std::string remark(std::span<const listed_row> rows) const override {
    return Described::remark(rows);
  }

  std::vector<listed_row> rows() const override {
    std::vector<listed_row> all;
    for (const auto& row : family_type::registry()) {
      listed_row one{.name = row.name,
                     .target = row.config.target,
                     .config = {},
                     .compile_seconds = static_cast<double>(row.compile_seconds),
                     .bytes = row.object_bytes};
      if constexpr (requires { row.resources; }) {
        one.resources = row.resources;
        if (is_cuda(row.config.target)) one.shared_bytes = shared_memory_bytes(row.config);
      }
      for_each_member(row.config, [&](std::string_view member, const auto& value) {
        one.config[boost::json::string_view(member)] = member_json(value);
      });
      all.push_back(std::move(one));
    }
    return all;
  }

  std::unique_ptr<file_call> open(std::string path, safetensors_file file,
                                  std::string_view op) const override {
    const auto named = enumerator_named<typename Described::op_type>(op);
    return std::make_unique<typed_call<Described>>(std::move(path), std::move(file), named.value());
  }

  std::string_view backward_of(std::string_view op) const override {
    const auto backward =
        Described::backward_of(enumerator_named<typename Described::op_type>(op).value());
    return backward ? name_of(*backward) : std::string_view();
  }

  result<explanation> explain(std::string_view problem, const context& context,
                              const device_facts* device) const override {
    const auto parsed = family_type::parse(problem);
    if (!parsed) return parsed.failure();
    return tessera::explain(*parsed, context, device);
  }

 private:
  template <class Value>
  static boost::json::value member_json(const Value& value) {
    if constexpr (described_enum<Value>) {
      return boost::json::value(boost::json::string_view(enumerator_name(value)));
    } else if constexpr (std::is_arithmetic_v<Value>) {
      return boost::json::value(value);
    } else {
      return Described::json_of(value);
    }
  }
};

}  // namespace tessera::tool
