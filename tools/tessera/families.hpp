// The families of kernels as the commands see them. Everything that a command does with an
// operation goes through these interfaces; the families themselves are in families/, one file each,
// and families/list.hpp is the list of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <tessera/api/context.hpp>
#include <tessera/interop/safetensors.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/selection.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/row_resources.hpp>
#include <tessera/spec/status.hpp>

#include "execution.hpp"
#include "tests/reference/operations.hpp"

namespace tessera::tool {

/// One row of this build.
struct listed_row {
  std::string_view name;
  backend target = backend::cpu_generic;
  boost::json::object config;  ///< its members by name: numbers, enumerators, lists of features
  double compile_seconds = 0;  ///< 0: not measured
  std::uint32_t bytes = 0;     ///< 0: not measured
  row_resources resources{};   ///< CUDA rows
  int shared_bytes = 0;        ///< CUDA rows: of a block, for the largest head dim; 0: not known
};

/// A row chosen for the shapes of a file, ready to run on its tensors. Lives no longer than the
/// call it was made from.
class planned_call {
 public:
  virtual ~planned_call() = default;
  /// Runs and waits for the end. Outputs of a GPU stay there.
  virtual status run() const = 0;
  /// The same; gives the seconds it took by the clock of the device.
  virtual result<double> timed_run() const = 0;
  /// Brings the outputs of a GPU to the memory that `allocate_outputs` made.
  virtual status fetch() const = 0;
  virtual device_id device() const = 0;
  virtual std::string_view row() const = 0;
  virtual selection_tier tier() const = 0;
  virtual selection_reason reason() const = 0;
  virtual int threads() const = 0;
};

/// One call read from a safetensors file: arguments, options, and memory for its outputs.
class file_call {
 public:
  virtual ~file_call() = default;

  const std::string& path() const noexcept { return path_; }
  const safetensors_file& file() const noexcept { return file_; }

  virtual std::string_view op() const = 0;
  /// The problem as text.
  virtual std::string problem() const = 0;
  /// Dtype of the operands: what tolerances depend on.
  virtual dtype operand_type() const = 0;
  virtual reference::call_work work() const = 0;

  /// Sets one option by its name. Fails with `subject`, the name and the value if the name is
  /// unknown or the value is of another kind.
  virtual void set_option(std::string_view name, const boost::json::value& value,
                          const std::string& subject) = 0;
  /// The options as a JSON object of those that differ from their defaults.
  virtual boost::json::value options() const = 0;

  /// Gives every output of the call memory whose bytes are all 0xff (NaN). Fails with the library's
  /// refusal of a call whose tensors or options do not fit together. What a gradient takes from the
  /// forward call, and nobody gave, is computed with the threads of the flags.
  virtual void allocate_outputs(const execution_flags& flags) = 0;
  /// The outputs there are, as `out.<name>`.
  virtual std::vector<safetensors_entry> outputs() const = 0;

  /// Fails with the library's refusal. A row that is not in the build is the answer "no".
  virtual std::unique_ptr<planned_call> plan(const execution_flags& flags) const = 0;
  /// The choice on the flags' backend.
  virtual result<explanation> explain(const execution_flags& flags) const = 0;

 protected:
  file_call(std::string path, safetensors_file file)
      : path_(std::move(path)), file_(std::move(file)) {}

 private:
  std::string path_;
  safetensors_file file_;
};

/// A family of kernels: rows that serve the same operations.
class family {
 public:
  virtual ~family() = default;
  /// First part of its rows' names.
  virtual std::string_view name() const = 0;
  /// Names of its operations: first words of problem text.
  virtual std::span<const std::string_view> ops() const = 0;
  /// Adds them to a list, with their aliases: "state_space_v1 (ssm1, mamba1)".
  virtual void append_ops(std::string& list) const = 0;
  /// Whether one of them has that name or alias.
  virtual bool serves(std::string_view op) const = 0;
  /// Sorted by name.
  virtual std::vector<listed_row> rows() const = 0;
  /// "every row has varlen, lengths.": what the rows of a listing have in common; may be empty.
  virtual std::string remark(std::span<const listed_row> rows) const = 0;

  /// Reads options (metadata key `options`) and input tensors of one of `ops()`. Names may have the
  /// prefix `in.`; `out.*`, `out2.*`, `ref.*` and gradients that the operation does not take are
  /// passed over.
  virtual std::unique_ptr<file_call> open(std::string path, safetensors_file file,
                                          std::string_view op) const = 0;
  /// The operation that computes the gradient of `op`, of any family; empty if there is none.
  virtual std::string_view backward_of(std::string_view op) const = 0;

  /// The whole choice for a problem text, on `device` or (null) on this machine.
  virtual result<explanation> explain(std::string_view problem, const context& context,
                                      const device_facts* device) const = 0;
};

/// Every family of this version.
std::span<const family* const> all_families();

/// The names of all operations, "flash_attention, attention, ...", and their number.
std::string op_list();
std::size_t op_count();

/// The same for the end of a help text: lines of a terminal, a paragraph for each family.
std::string op_paragraphs();

/// The family of an operation; fails with the list of the names there are.
const family& family_of(std::string_view op, const std::string& subject);

/// Opens a file as a call; `op` empty means that of its metadata.
std::unique_ptr<file_call> open_call(const std::string& path, std::string_view op = {});

/// `NAME=VALUE` as on the command line: VALUE is a JSON value, or a bare word.
void set_option(file_call& call, std::string_view assignment);

/// A value of a row's config for people: "128", "bf16", "varlen+lengths".
std::string text_of(const boost::json::value& value);

}  // namespace tessera::tool
