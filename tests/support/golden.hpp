// A golden file as a call: inputs, options, and outputs in guarded memory, one for each `ref.*`
// that a forward operation gives. The format is described in tests/golden/README.md.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>

#include <tessera/interop/safetensors.hpp>
#include <tessera/spec/flash_attention/args.hpp>
#include <tessera/spec/flash_attention/options.hpp>
#include <tessera/spec/flash_attention/problem.hpp>
#include <tessera/spec/flash_attention/reflect.hpp>

#include "compare.hpp"
#include "guarded_tensor.hpp"

namespace tessera::support {

/// One option from its JSON value; throws boost::system::system_error where the kinds differ.
template <class Option>
void read_option(Option& option, const boost::json::value& value) {
  if constexpr (std::is_same_v<Option, bool>) {
    option = value.as_bool();
  } else if constexpr (std::is_enum_v<Option>) {
    option = enumerator_named<Option>(std::string_view(value.as_string())).value();
  } else if constexpr (std::is_arithmetic_v<Option>) {
    option = value.to_number<Option>();
  } else if (!value.is_null()) {
    read_option(option.emplace(), value);
  }
}

inline flash_attention_options options_from(const boost::json::object& object) {
  flash_attention_options options;
  std::size_t known = 0;
  for_each_member(options, [&](std::string_view name, auto& option) {
    const boost::json::value* value = object.if_contains(name);
    if (value == nullptr) return;
    ++known;
    read_option(option, *value);
  });
  if (known != object.size()) throw std::invalid_argument("unknown option in a golden file");
  return options;
}

class golden_case {
 public:
  /// Throws tessera::error for a file that cannot be read.
  explicit golden_case(const std::filesystem::path& path)
      : name_(path.stem().string()), file_(safetensors_file::open(path).value()) {
    const auto metadata = [&](std::string_view key) {
      const auto found = file_.metadata().find(key);
      return found == file_.metadata().end() ? std::string("{}") : found->second;
    };
    op_ = enumerator_named<flash_op>(metadata("op")).value();
    options_ = options_from(boost::json::parse(metadata("options")).as_object());
    for_each_member(args_, [&](std::string_view member, tensor_view& view) {
      if (const tensor_view* input = file_.tensor("in." + std::string(member))) view = *input;
    });
    for (const std::string_view output : {"out", "lse", "row_max", "weights", "dropout_mask"}) {
      make_output(output);
    }
    for_each_member(args_, [&](std::string_view member, tensor_view& view) {
      const auto found = outputs_.find(member);
      if (found != outputs_.end()) view = found->second.view();
    });
  }

  const std::string& name() const noexcept { return name_; }
  flash_op op() const noexcept { return op_; }
  const flash_attention_args& args() const noexcept { return args_; }
  const flash_attention_options& options() const noexcept { return options_; }

  void reset_outputs() {
    for (auto& [name, output] : outputs_) output.reset();
  }

  /// One sentence for each output that is wrong, or whose margins were written; empty if all are
  /// right.
  std::string complaints() const {
    std::string text;
    for (const auto& [name, output] : outputs_) {
      const comparison found = judge(name, output.view());
      if (!found.passed) text += sentence_of(found, name, output.view().shape()) + "\n";
      if (!output.margins_intact()) text += name + ": bytes outside the tensor were written\n";
    }
    return text;
  }

  /// How one output compares with `ref.*`, and with the bound that the source's own error sets.
  comparison judge(const std::string& name, const tensor_view& ours) const {
    const tensor_view& reference = *file_.tensor("ref." + name);
    const std::vector<double> want = reference::to_doubles(reference);
    const std::int64_t width = reference.extent[static_cast<std::size_t>(reference.rank - 1)];
    const error_scale scale = scale_of(name);
    double source_error = 0.0;
    if (const tensor_view* source = file_.tensor("out." + name)) {
      source_error = compare(reference::to_doubles(*source), want, width, scale).error;
    }
    return judged(compare(reference::to_doubles(ours), want, width, scale), source_error,
                  floor_of(name, args_.q.type));
  }

 private:
  void make_output(std::string_view name) {
    const tensor_view* reference = file_.tensor("ref." + std::string(name));
    if (reference == nullptr) return;
    dtype type = dtype::f32;
    if (name == "out") type = args_.q.type;
    if (name == "dropout_mask") type = dtype::u8;
    outputs_.emplace(name, guarded_tensor(type, reference->rank, reference->extent));
  }

  std::string name_;
  safetensors_file file_;
  flash_op op_{};
  flash_attention_args args_{};
  flash_attention_options options_{};
  std::map<std::string, guarded_tensor, std::less<>> outputs_;
};

/// The golden files of a folder, sorted by name.
inline std::vector<std::filesystem::path> golden_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace tessera::support
