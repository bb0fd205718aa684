// What the generator knows of a family: its rows as text, where they came from, and its budget.
// Nothing here depends on a family; `families.hpp` lists them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <tessera/spec/backend.hpp>

namespace tessera::generate {

/// One row of the table, ready to be written.
struct row {
  std::string name;       ///< name_of(config)
  std::string type_name;  ///< the policy struct in tessera::rows
  backend target = backend::cpu_generic;
  std::string type;    ///< element type; part of the unit's file name
  std::string config;  ///< the config's members in order: an initializer list
  friend bool operator==(const row&, const row&) = default;
};

/// One product of axis values, and what became of it.
struct block_report {
  std::string about;
  std::string product;  ///< "2 targets x 3 types x ..."
  int combinations = 0;
  int rows = 0;
  std::map<std::string, int> dropped;  ///< rule -> combinations
};

/// The rows of a table, sorted by name, and how they came about.
struct table {
  std::vector<row> rows;
  std::vector<block_report> blocks;
};

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

/// Text that the generated files of a family need.
struct family {
  std::string_view name;            ///< "flash_fwd": first part of row and file names
  std::string_view row_macro;       ///< the macro of rows/<name>.inc
  std::string_view config_type;     ///< the config that a row's policy struct holds
  std::string config_members;       ///< its members in order
  std::string_view kernel_header;   ///< what a unit includes
  std::string_view table_header;    ///< what the registry unit includes
  std::string_view table_template;  ///< class template over the rows: checks and instances
  std::string_view registry;        ///< the function that the registry unit defines
  std::string_view instance;        ///< its element type
  std::vector<std::string> (*instantiations)(const std::string& type_name);
  int rows_per_unit = 3;
  budget limits{};
  std::function<outcome<table>()> default_table;
  /// The row of that name, or why there is none: "is not ...".
  std::function<outcome<row>(std::string_view name)> row_named;
};

}  // namespace tessera::generate
