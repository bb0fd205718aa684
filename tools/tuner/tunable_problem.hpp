// What the tuner needs of a problem: which rows may run it, inputs for it, a way to run one row on
// them and a verdict on what it wrote. All of it follows from the declaration of the operation and
// its reference (declared_problem.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/policy.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::tuner {

/// The key of a problem's measurements and what they depend on; texts as in lookup_record.
struct problem_key {
  std::string family;
  int semantic_version = 1;
  std::string code_version;
  std::string device_class;
  std::string identity;
  std::string size;
  friend bool operator==(const problem_key&, const problem_key&) = default;
};

/// A row that runs the problem on its device.
struct candidate {
  std::string name;
  double predicted_seconds = 0;
  double resources = 0;        ///< bytes of code; decides between equally fast rows
  bool fallback = false;       ///< choosing it counts as a fallback: it takes any problem
  double compile_seconds = 0;  ///< of one core; 0: not known
};

/// One problem on one device of this machine, with its inputs. Used by one thread at a time.
class tunable_problem {
 public:
  virtual ~tunable_problem() = default;

  /// Problem text, the operation's name included.
  virtual const std::string& text() const noexcept = 0;
  virtual const problem_key& key() const noexcept = 0;
  /// Every row that may run the problem, lowest predicted time first.
  virtual std::span<const candidate> candidates() const noexcept = 0;
  /// What runs without a table: an index into `candidates`.
  virtual std::size_t default_row() const noexcept = 0;
  /// The row whose results are the standard: an index into `candidates`.
  virtual std::size_t reference_row() const noexcept = 0;

  /// Makes input tensors with ordinary values, as large and as ragged as the problem says, in
  /// memory that exceeds the caches: successive rounds read different parts. The same seed gives
  /// the same inputs.
  virtual status make_inputs(std::uint64_t seed) = 0;
  virtual void drop_inputs() = 0;

  /// Makes a row ready: fresh outputs and workspace with canaries around them.
  virtual status prepare(std::size_t row) = 0;
  /// Runs the prepared row on the inputs of a round. Like `time`, throws where the device can do
  /// nothing more for this process.
  virtual status run(std::size_t round) = 0;
  /// Seconds that `repeats` runs take together, from this round on, by the clock of the device that
  /// runs them.
  virtual result<double> time(std::size_t round, std::size_t repeats) = 0;
  /// True if what other programs take of the processor shows in the times.
  virtual bool shares_processor() const noexcept { return true; }

  /// Size of the results of round 0, and the results themselves after run(0).
  virtual std::size_t result_bytes() const = 0;
  virtual void copy_results(std::span<std::byte> results) const = 0;
  /// After run(0): what is wrong with the results of the prepared row, one sentence; empty if every
  /// canary lives and every element agrees with the reference row's (`expected`, from copy_results;
  /// empty: nothing is compared).
  virtual std::string complaint(std::span<const std::byte> expected) const = 0;
  /// Likewise what the definition says of a sample of them, which is larger if `thorough`.
  virtual std::string against_definition(bool thorough) const = 0;
  /// True if making a process ready for the rows takes longer than they do, so that the gate lets
  /// rows share one as long as they are right.
  virtual bool shares_process() const noexcept { return false; }
};

/// What a problem is measured with.
struct conditions {
  int threads = 0;  ///< 0: what OpenMP would use; a GPU has its multiprocessors
  const application_rows* rows =
      nullptr;  ///< rows beside those of the build; must outlive problems
  /// Facts of a GPU of this machine, or of a device that need not be there, to ask for candidates;
  /// null: this machine's processor. Only what is there can run.
  const device_facts* device = nullptr;
  /// Only these rows; empty: all. What a policy demands of rows narrows them.
  std::span<const std::string_view> only{};
  /// Instead of the problem's own identity text; empty: that. A policy's demands are part of it.
  std::string_view identity{};
};

/// Reads a problem text of any operation of this build. Refuses what the operation refuses, first
/// words that name none with the list of those there are, and problems that no row runs on the
/// device.
result<std::unique_ptr<tunable_problem>> open_problem(std::string_view text,
                                                      const conditions& where = {});

}  // namespace tessera::tuner
