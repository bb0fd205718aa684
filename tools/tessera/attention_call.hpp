// One attention call read from a safetensors file: arguments, options, and memory for its outputs.
// Serves `run` and `check`.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/value.hpp>

#include <tessera/interop/safetensors.hpp>
#include <tessera/spec/flash_attention/problem.hpp>

#include "bench/support/memory.hpp"

namespace tessera::tool {

/// The operation of that name; fails with the list of the names there are.
flash_op op_named(std::string_view name, const std::string& subject);

/// Sets one option by its name. Fails with `subject`, the name and the value if the name is unknown
/// or the value is of another kind.
void set_option(flash_attention_options& options, std::string_view name,
                const boost::json::value& value, const std::string& subject);

/// `NAME=VALUE` as on the command line: VALUE is a JSON value, or a bare word.
void set_option(flash_attention_options& options, std::string_view assignment);

/// The options as a JSON object of those that differ from their defaults.
boost::json::value to_json(const flash_attention_options& options);

/// An open file and the call it describes. Moving it keeps the views valid.
class attention_call {
 public:
  /// Opens the file and reads options (metadata key `options`) and input tensors; `op` empty means
  /// that of the metadata. Names may have the prefix `in.`; `out.*`, `out2.*`, `ref.*` and
  /// gradients are passed over.
  static attention_call open(const std::string& path, std::string_view op = {});

  const std::string& path() const noexcept { return path_; }
  const safetensors_file& file() const noexcept { return file_; }
  flash_op op() const noexcept { return op_; }
  flash_attention_options& options() noexcept { return options_; }
  const flash_attention_options& options() const noexcept { return options_; }
  flash_attention_args& args() noexcept { return args_; }
  const flash_attention_args& args() const noexcept { return args_; }

  /// Gives every output of the call memory whose bytes are all 0xff (NaN). Leaves `args` without
  /// outputs whose shapes cannot be told; the call itself will be refused with the reason.
  void allocate_outputs();

  /// The outputs there are, as `out.<name>`.
  std::vector<safetensors_entry> outputs() const;

 private:
  attention_call(std::string path, safetensors_file file)
      : path_(std::move(path)), file_(std::move(file)) {}
  void read_tensors();
  void read_options();
  tensor_view output(dtype type, std::initializer_list<std::int64_t> extent);

  std::string path_;
  safetensors_file file_;
  flash_op op_ = flash_op::flash_attention;
  flash_attention_options options_{};
  flash_attention_args args_{};
  std::vector<bench::buffer> memory_;
};

}  // namespace tessera::tool
