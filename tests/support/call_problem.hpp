// Random legal problems of any operation, drawn from its declaration alone: options, which tensors
// there are, types and extents. Biased to edges: no element, one, sizes next to those of tiles.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/runtime/family.hpp>
#include <tessera/spec/problem_text.hpp>

#include "random.hpp"

namespace tessera::support {

/// One thing that a call of an operation may have: an optional tensor, or an option that is not at
/// its default.
struct call_trait {
  bool is_option = false;
  std::size_t index = 0;  ///< of the signature
};

/// Every trait of an operation.
std::vector<call_trait> traits_of(const operation& op);
std::string_view name_of(const operation& op, const call_trait& trait);

/// What a drawn problem is to be.
struct call_wishes {
  dtype type = dtype::none;  ///< of the tensors that decide it; none: any
  std::array<std::optional<std::int64_t>, max_dims> extents{};  ///< of dims with one value only
  std::span<const call_trait> traits{};                         ///< that it has
  /// How likely any other trait is; unset: now few, now many.
  std::optional<double> density{};
  double work = 1e5;             ///< most multiply-adds, about
  std::int64_t longest = 300;    ///< most of any extent
  int attempts = 4000;           ///< draws until a legal one
  const family* kind = nullptr;  ///< with `row`: problems that the row runs
  const instance* row = nullptr;
};

/// A legal problem, or none if no draw gave one. Extents that follow from contents
/// are 0.
std::optional<owned_problem> drawn_problem(const operation& op, random_source& random,
                                           const call_wishes& wishes = {});

/// The problem of a line of text without the operation's name, with every tensor that its layout
/// and options allow; `everything` false: with those that it names and those that are required.
result<owned_problem> whole_problem(const operation& op, std::string_view fields,
                                    bool everything = true);

/// Whether a row runs a legal problem.
bool runs(const family& kind, const instance& row, const problem_view& problem);

/// Whether a tensor may be given where everything else is as it is.
bool is_allowed(const bound_call& call, std::size_t tensor);

/// Extent of an axis that is not broadcast.
using checks::extent_of;

}  // namespace tessera::support
