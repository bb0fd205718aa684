#include "code_version.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "output.hpp"

namespace tessera::generate {
namespace {

namespace fs = std::filesystem;

/// The text without comments and white space. Literals keep theirs.
std::string condensed(std::string_view text) {
  std::string kept;
  std::size_t at = 0;
  while (at < text.size()) {
    const char letter = text[at];
    const std::string_view two = text.substr(at, 2);
    if (two == "//") {
      at = std::min(text.find('\n', at), text.size());
    } else if (two == "/*") {
      const std::size_t end = text.find("*/", at + 2);
      at = end == std::string_view::npos ? text.size() : end + 2;
    } else if (letter == '"') {
      const std::size_t begin = at++;
      while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
      at = std::min(at + 1, text.size());
      kept += text.substr(begin, at - begin);
    } else {
      if (letter != ' ' && letter != '\n' && letter != '\t' && letter != '\r') kept += letter;
      ++at;
    }
  }
  return kept;
}

/// Paths of the library's own headers that a text includes.
std::vector<std::string> included(std::string_view text) {
  constexpr std::string_view directive = "#include <tessera/";
  std::vector<std::string> found;
  for (std::size_t at = text.find(directive); at != std::string_view::npos;
       at = text.find(directive, at + 1)) {
    const std::size_t begin = at + std::string_view("#include <").size();
    found.emplace_back(text.substr(begin, text.find('>', begin) - begin));
  }
  return found;
}

}  // namespace

outcome<fs::path> include_folder(const fs::path& asked) {
  const fs::path known = fs::path("tessera") / "version.hpp";
  std::error_code missing;
  std::vector<fs::path> candidates;
  if (!asked.empty()) {
    candidates.push_back(asked);
  } else {
    const fs::path program = fs::read_symlink("/proc/self/exe", missing);
    candidates.push_back(program.parent_path().parent_path() / "include");
#if defined(TESSERA_INCLUDE_DIR)
    candidates.emplace_back(TESSERA_INCLUDE_DIR);
#endif
  }
  for (const fs::path& path : candidates) {
    if (fs::exists(path / known, missing)) return path;
  }
  return refusal{
      fmt::format("--include: {} is not there, and the digest of the kernels' sources "
                  "needs the library's headers",
                  (candidates.back() / known).string())};
}

outcome<std::string> code_version(const fs::path& include, std::vector<std::string> waiting) {
  std::map<std::string, std::string> texts;  // sorted, so that the order of includes is no matter
  while (!waiting.empty()) {
    const std::string path = waiting.back();
    waiting.pop_back();
    if (texts.contains(path)) continue;
    const auto text = content_of(include / path);
    if (!text) return refusal{fmt::format("{}: cannot be read", (include / path).string())};
    texts[path] = condensed(*text);
    for (std::string& more : included(*text)) waiting.push_back(std::move(more));
  }
  std::uint64_t digest = 0xcbf29ce484222325u;
  const auto add = [&](std::string_view part) {
    for (const char letter : part) {
      digest = (digest ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
    }
    digest = digest * 0x100000001b3u;  // a zero byte: parts do not run into each other
  };
  for (const auto& [path, text] : texts) {
    add(path);
    add(text);
  }
  return fmt::format("{:016x}", digest);
}

outcome<code_versions> code_versions_of(const fs::path& include, const family& family) {
  code_versions versions;
  for (const device_part part : device_parts) {
    const family_part& sources = family.of(part);
    if (sources.kernel_header.empty()) continue;
    std::vector<std::string> headers{std::string(sources.kernel_header)};
    for (const auto& [target, header] : sources.own_headers) headers.emplace_back(header);
    auto version = code_version(include, std::move(headers));
    if (const auto* why = std::get_if<refusal>(&version)) return *why;
    versions[static_cast<std::size_t>(part)] = std::get<std::string>(std::move(version));
  }
  return versions;
}

}  // namespace tessera::generate
