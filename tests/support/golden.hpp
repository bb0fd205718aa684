// A golden file as a call of any operation: inputs, options, and outputs in guarded memory, one for
// each `ref.*` that the operation gives. The format is described in tests/golden/README.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>

#include <tessera/interop/safetensors.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/reflect.hpp>

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

template <class Options>
Options options_from(const boost::json::object& object) {
  Options options;
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

/// `Call` names the types of a family (op_type, args_type, options_type) and says which outputs an
/// operation has, `outputs(op)`, and their dtypes, `type_of(name, args)`; `type_of("", args)` is
/// the dtype that tolerances depend on.
template <class Call>
class golden_case {
 public:
  using op_type = typename Call::op_type;

  /// Throws tessera::error for a file that cannot be read. `op`: another operation than the file's.
  explicit golden_case(const std::filesystem::path& path, std::optional<op_type> op = {})
      : name_(path.stem().string()), file_(safetensors_file::open(path).value()) {
    const auto metadata = [&](std::string_view key) {
      const auto found = file_.metadata().find(key);
      return found == file_.metadata().end() ? std::string("{}") : found->second;
    };
    op_ = op ? *op : enumerator_named<op_type>(metadata("op")).value();
    options_ = options_from<typename Call::options_type>(
        boost::json::parse(metadata("options")).as_object());
    for_each_member(args_, [&](std::string_view member, tensor_view& view) {
      const tensor_view* input = file_.tensor("in." + std::string(member));
      if (input != nullptr && Call::takes(op_, member)) view = *input;
    });
    for (const std::string_view output : Call::outputs(op_)) make_output(output);
    for_each_member(args_, [&](std::string_view member, tensor_view& view) {
      const auto found = outputs_.find(member);
      if (found != outputs_.end()) view = found->second.view();
    });
  }

  const std::string& name() const noexcept { return name_; }
  op_type op() const noexcept { return op_; }
  const typename Call::args_type& args() const noexcept { return args_; }
  const typename Call::options_type& options() const noexcept { return options_; }

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
                  floor_of(name, Call::type_of("", args_)));
  }

 private:
  void make_output(std::string_view name) {
    const tensor_view* reference = file_.tensor("ref." + std::string(name));
    if (reference == nullptr) return;
    const dtype type = Call::type_of(name, args_);
    outputs_.emplace(name, guarded_tensor(type, reference->rank, reference->extent));
  }

  std::string name_;
  safetensors_file file_;
  op_type op_{};
  typename Call::args_type args_{};
  typename Call::options_type options_{};
  std::map<std::string, guarded_tensor, std::less<>> outputs_;
};

/// The folder of the golden files: TESSERA_GOLDEN_DIR, for programs that left their build, else the
/// one they were built with.
inline std::filesystem::path golden_folder(const char* built_with) {
  const char* const elsewhere = std::getenv("TESSERA_GOLDEN_DIR");
  return elsewhere != nullptr ? elsewhere : built_with;
}

/// The golden files of some operations in a folder, sorted by name: `<op>.<case>.safetensors`.
inline std::vector<std::filesystem::path> golden_files(const std::filesystem::path& folder,
                                                       std::span<const operation> operations) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const std::string op = name.substr(0, name.find('.'));
    const bool ours = std::any_of(operations.begin(), operations.end(),
                                  [&](const operation& known) { return known.name == op; });
    if (ours && entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace tessera::support
