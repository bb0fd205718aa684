// A digest of what a family's units for one kind of device are compiled from: measurements name it,
// so that a table knows when it was measured with other kernels.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "table.hpp"
#include "units.hpp"

namespace tessera::generate {

/// The folder that holds tessera/version.hpp: `asked` if it is not empty, else the one installed
/// beside the running program, else that of the source tree the program was built in.
outcome<std::filesystem::path> include_folder(const std::filesystem::path& asked);

/// 16 hexadecimal digits: FNV-1a over `headers` and every header of the library that they include,
/// directly or not. Comments and white space do not count.
outcome<std::string> code_version(const std::filesystem::path& include,
                                  std::vector<std::string> headers);

/// That of each part of a family.
outcome<code_versions> code_versions_of(const std::filesystem::path& include, const family& family);

}  // namespace tessera::generate
