// What the generator knows of a family: its rows as text, where they came from, and its budget.
// Nothing here depends on a family; `families.hpp` lists them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <tessera/spec/backend.hpp>
#include <tessera/spec/declaration.hpp>

namespace tessera::generate {

/// One row of the table, ready to be written.
struct row {
  std::string name;       ///< name_of(config)
  std::string type_name;  ///< the policy struct in tessera::rows
  backend target = backend::cpu_generic;
  std::string unit;    ///< rows of a backend that share it share a file, whose name it is part of
  std::string config;  ///< the config's members in order: an initializer list
  std::vector<std::string> instantiations;  ///< lines of its unit
  friend bool operator==(const row&, const row&) = default;
};

/// One product of axis values, and what became of it.
struct block_report {
  std::string about;
  std::string product;  ///< "2 target x 3 type x ..."
  int combinations = 0;
  int rows = 0;
  std::map<std::string_view, int> dropped;  ///< sentence of a rule -> combinations
};

/// The rows of a table, sorted by name, and how they came about.
struct table {
  std::vector<row> rows;
  std::vector<block_report> blocks;
};

/// The back end of each row, by its name; lives as long as the tables.
using targets_by_row = std::map<std::string_view, backend>;
inline targets_by_row targets_of(std::span<const table> tables) {
  targets_by_row targets;
  for (const table& table : tables) {
    for (const row& member : table.rows) targets.emplace(member.name, member.target);
  }
  return targets;
}

/// Why there is no table: one sentence.
struct refusal {
  std::string message;
};

template <class Value>
using outcome = std::variant<Value, refusal>;

/// What a family may cost, all units together, and each unit.
struct budget {
  int rows = 0;
  double seconds = 0;  ///< of one core
  std::int64_t bytes = 0;
  double unit_seconds = 60;
  double unit_mebibytes = 1536;
};

/// Rows of the CPU and of CUDA: kernels of their own, and budgets.
enum class device_part : std::uint8_t { cpu, cuda };
inline constexpr std::array device_parts{device_part::cpu, device_part::cuda};
constexpr device_part part_of(backend target) noexcept {
  return is_cpu(target) ? device_part::cpu : device_part::cuda;
}

/// What the rows of a family for one kind of device are compiled from, and may cost.
struct family_part {
  std::string kernel_header;  ///< what a unit includes; empty: no such rows
  /// What units of back ends include that have kernels of their own.
  std::map<backend, std::string> own_headers{};
  budget limits{};

  const std::string& header_of(backend target) const {
    const auto own = own_headers.find(target);
    return own != own_headers.end() ? own->second : kernel_header;
  }
};

/// The structs of some operations of a family, as C++ names them, and the operations: enumerators.
struct operation_types {
  std::string op, args, options;
  std::vector<std::string> operations;
};

/// Text that the generated files of a family need.
struct family {
  std::string_view name;       ///< "attention": first part of row and file names
  std::string row_macro;       ///< the macro of rows/<name>.inc
  std::string config_type;     ///< the config that a row's policy struct holds
  std::string config_members;  ///< its members in order
  /// Declares what spec/fits.hpp needs to say which problems a row runs.
  std::string fits_header;
  /// Its rooms of kernels write entry points as functions; of others they follow from launchers.
  bool has_entry_functions = false;
  /// Its row.hpp is written by hand: rows have more than the usual entry points.
  bool has_own_row_header = false;
  /// What declares its functions: tessera/api/<header>.hpp.
  std::vector<std::string_view> api_headers;
  /// The runtime struct that its record is made of, and the header that has it.
  std::string runtime_struct;
  std::vector<operation_types> problems;
  int number = 0;                                        ///< that of tessera::family
  std::span<const operation> operations;                 ///< that its rows run
  std::array<family_part, device_parts.size()> parts{};  ///< by device_part
  std::function<outcome<table>()> default_table;
  /// The row of that name, or why there is none: "is not ...".
  std::function<outcome<row>(std::string_view name)> row_named;
  /// Rows that do the same as the row of that name with other tiles: the candidates of a tuning.
  /// None where a family has no tiles to choose.
  std::function<std::vector<row>(std::string_view name)> candidates_beside;
  /// The row of a backend that a build for this problem gets (see cheapest_row.hpp), no value if
  /// the backend can have none. Refuses a malformed problem.
  std::function<outcome<std::optional<row>>(std::string_view problem, backend target)> row_for;
  /// Exact part of the problem's key in a lookup table; the problem is one that `row_for` took.
  std::function<std::string(std::string_view problem)> identity_of;

  family_part& of(device_part part) noexcept { return parts[static_cast<std::size_t>(part)]; }
  const family_part& of(device_part part) const noexcept {
    return parts[static_cast<std::size_t>(part)];
  }
};

}  // namespace tessera::generate
