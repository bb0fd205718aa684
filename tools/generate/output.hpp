// Writing the generated files, or comparing them with what is there.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "units.hpp"

namespace tessera::generate {

/// The bytes of a file; nothing where none can be read.
std::optional<std::string> content_of(const std::filesystem::path& path);

/// Makes `folder` hold exactly these generated files under rows/, units/ and include/: unchanged
/// files keep their time stamp, generated files that are no longer wanted are removed. Says what
/// changed.
outcome<std::string> write_files(const std::filesystem::path& folder, const file_set& files);

/// Lists every file under rows/, units/ and include/ that is missing, differs or should not be
/// there; empty if the folder is fresh.
std::string stale_files(const std::filesystem::path& folder, const file_set& files);

}  // namespace tessera::generate
