// A tunable problem of any declared operation. What is left to a family is its workload: inputs,
// and the definition of the operation.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/runtime/family.hpp>
#include <tessera/spec/problem_text.hpp>

#include "tunable_family.hpp"

namespace tessera::tuner {

/// Inputs of a problem in host memory; the place of the problem brings them where the rows run.
class workload_inputs {
 public:
  virtual ~workload_inputs() = default;
  /// The inputs of a round, without outputs: a view per tensor of the operation's signature.
  virtual std::vector<tensor_view> tensors(std::size_t round) const = 0;
  /// The memory in which they lie, all rounds.
  virtual std::vector<std::span<const std::byte>> blocks() const = 0;
  /// How the computed tensors of round 0 differ from the definition on a sample of their elements;
  /// empty if within bounds.
  virtual std::string disagreement(const std::vector<tensor_view>& tensors,
                                   bool thorough) const = 0;
};

/// Makes the inputs of a problem, in memory of at least `cold_bytes` that is used piece by piece.
using workload_maker = std::unique_ptr<workload_inputs> (*)(const problem_view& problem,
                                                            std::uint64_t seed,
                                                            std::size_t cold_bytes);

/// A family of such problems. Families that this build has no rows for run nothing.
std::unique_ptr<tunable_family> declared_family(std::string_view name, workload_maker make);

}  // namespace tessera::tuner
