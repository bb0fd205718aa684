// What `tessera table stats` and `tessera table dump` print.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "table_files.hpp"

namespace tessera::tool {

/// The state of each file, then what it holds per family and device class.
void print_stats(const std::vector<opened_table>& tables);
void print_stats_json(const std::vector<opened_table>& tables);

/// Every record that holds, by family, device class and identity.
void print_dump(const std::vector<opened_table>& tables);
void print_dump_json(const std::vector<opened_table>& tables);

/// "1 row", "12 rows".
std::string counted(std::int64_t count, std::string_view what);

/// "4.1 KiB".
std::string bytes_text(std::int64_t bytes);

}  // namespace tessera::tool
