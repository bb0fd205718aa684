// JSON in and out of the commands.
#pragma once

#include <string>
#include <string_view>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

namespace tessera::tool {

/// The whole of a file. Fails with the file's name and the system's reason, or with both sizes if
/// it is longer than `limit` bytes.
std::string file_text(const std::string& path, std::size_t limit);

/// Parses one JSON document: no comments, no trailing text, at most 32 levels, no key twice in an
/// object. Fails with `subject`, the position and the fact.
boost::json::value parse_json(std::string_view text, const std::string& subject);

/// The document indented by two spaces, short arrays of scalars on one line. Numbers print with the
/// fewest digits that read back the same; NaN and infinities, which JSON lacks, as null.
std::string json_text(const boost::json::value& value);

/// The same on one line.
std::string json_line(const boost::json::value& value);

/// Prints the document and a newline on stdout.
void print_json(const boost::json::value& value);

}  // namespace tessera::tool
