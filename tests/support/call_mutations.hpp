// Every way in which tests make a legal call of an operation illegal, derived from its declaration:
// one thing changed at a time. What is said of each is reviewed text,
// tests/golden/refusals/<op>.txt.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "call_data.hpp"

namespace tessera::support {

struct call_mutation {
  std::string what;     ///< "q axis 0 + 1"
  bool option = false;  ///< changes an option, which plans have fixed
  /// May change numbers behind a pointer, which `call_data::reset` puts back.
  std::function<void(owned_problem&)> apply;
};

/// Every change that fits a legal call, most of them illegal.
std::vector<call_mutation> mutations_of(const call_data& legal);

/// What the checks say of a changed call whose tensors lie on the host; without `contents`, of
/// everything but the numbers that they hold, which nobody looks at on a device.
status checked(const owned_problem& call, bool contents = true);

/// A section of a file of refusals: a legal problem, and what is said of each change.
struct refusal_section {
  std::string fields;              ///< problem text without the operation's name
  std::vector<std::string> lines;  ///< "q absent -> q: is absent, ..."
};
/// The sections of an operation's file; empty if there is none.
std::vector<refusal_section> refusals_of(std::string_view op);
std::string refusals_path(std::string_view op);

/// The legal call of a section, with every tensor that its layout and options allow.
std::unique_ptr<call_data> legal_call(const operation& op, std::string_view fields);

}  // namespace tessera::support
