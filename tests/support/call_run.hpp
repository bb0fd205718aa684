// The rows of a build, whatever their families, and a call on one of them in every way there is.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include <tessera/runtime/operation.hpp>

#include "call_data.hpp"
#include "call_judge.hpp"
#include "place.hpp"
#include "test_name.hpp"

namespace tessera::support {

/// An operation of this build and its family.
struct tested_operation {
  const family* kind = nullptr;
  const operation* op = nullptr;
};
inline void PrintTo(const tested_operation& operation, std::ostream* stream) {
  *stream << operation.op->name;
}
/// Every operation; its reference is in tests/reference.
std::vector<tested_operation> tested_operations();

/// Why no call of a family runs where this program's calls run; empty if rows of the build do.
std::string why_not_here(const family& kind);

/// A row of this build and its family.
struct tested_row {
  const family* kind = nullptr;
  const instance* row = nullptr;
};
inline void PrintTo(const tested_row& row, std::ostream* stream) {
  *stream << row.row->name;
}
/// Every row that this program tests, whether or not the machine runs it.
std::vector<tested_row> tested_rows();

/// A random legal call that the row runs, or null where it runs none like it.
std::unique_ptr<call_data> call_for(const tested_row& row, const operation& op,
                                    random_source& random, call_wishes wishes = {},
                                    memory_wishes memory = {});

/// A random legal call as `wishes` want it that rows run here: where each of them was compiled for
/// extents of its own, those of one of them.
std::unique_ptr<call_data> call_here_for(const tested_operation& tested, random_source& random,
                                         call_wishes wishes, memory_wishes memory = {});

/// What is wrong with a call under these circumstances: its result, bytes around it, other bits
/// than `first` (filled if empty) where the row promises the same. Empty: nothing.
std::string complaints_of_call(const family& kind, call_data& data,
                               const call_expectation& expectation, const context& where,
                               std::vector<std::vector<std::byte>>& first);

/// What is wrong with a plan for the problem of a call that has other values, layouts and contents,
/// with a run of this one, and with the explanation of the choice. Empty: nothing.
std::string complaints_of_plan(const family& kind, call_data& data,
                               const call_expectation& expectation, const context& where);

}  // namespace tessera::support
