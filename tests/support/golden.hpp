// A golden file as a call of any operation: inputs, options, and outputs in guarded memory, one for
// each `ref.*` that the operation gives. The format is described in tests/golden/README.md.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/interop/safetensors.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/spec/problem_text.hpp>

#include "compare.hpp"
#include "guarded_tensor.hpp"

namespace tessera::support {

/// A file, and one of the operations that it serves: its own, or the gradient of that.
struct golden_name {
  std::filesystem::path path;
  const family* kind = nullptr;
  const operation* op = nullptr;

  std::string text() const;
};
inline void PrintTo(const golden_name& golden, std::ostream* stream) {
  *stream << golden.text();
}

/// Every golden file with every operation of this build that it serves, sorted by name.
std::vector<golden_name> golden_names();

class golden_call {
 public:
  /// Throws tessera::error or std::exception for a file that cannot be read.
  explicit golden_call(const golden_name& name);
  golden_call(const golden_call&) = delete;
  golden_call& operator=(const golden_call&) = delete;

  problem_view problem() const noexcept { return problem_.view(); }
  void reset_outputs();
  /// One sentence for each output that is wrong, or whose margins were written; empty if all are
  /// right.
  std::string complaints() const;
  /// The same of the operation's reference, which agrees but for the order of sums.
  std::string reference_complaints() const;

 private:
  void read_options(const std::string& json);
  void read_residuals();
  void make_output(std::size_t tensor, const tensor_view& reference);
  comparison judge(std::size_t tensor, const std::vector<double>& ours) const;
  bool is_an_answer(std::size_t input) const;
  std::string name_of(std::size_t tensor) const;
  const tensor_view* expected(std::size_t tensor) const;

  safetensors_file file_;
  owned_problem problem_;
  dtype operands_ = dtype::none;
  std::map<std::size_t, guarded_tensor> residuals_;
  std::map<std::size_t, guarded_tensor> outputs_;
};

}  // namespace tessera::support
