// Problems as data: bench/shapes/*.txt, one problem text a line. Behind a `#` a line can carry
// notes `name=value` that say how the case is run and what it is held to (see bench/README.md).
#pragma once

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::bench {

/// What a case is held to: `quantity` of at least (time: at most) `value`.
struct case_goal {
  std::string quantity{};  ///< peak, read, rate or time; empty: nothing
  double value = 0;
};

/// One line of a shape file.
struct bench_case {
  std::string group{};    ///< the file's stem
  std::string problem{};  ///< problem text
  std::string beside{};   ///< plain, square, one_thread or f32: what it is timed next to
  std::string lengths{};  ///< zipf: lengths of packed sequences fall as 1, 1/2, 1/3, ...
  std::string isa{};      ///< back end whose row is taken, as on a machine that has no more
  int threads = 0;        ///< 0: what OpenMP would use
  case_goal goal{};
};

namespace detail {

inline double number_in(std::string_view text, const std::string& line) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw std::runtime_error("\"" + std::string(text) + "\" is not a number, in: " + line);
  }
  return value;
}

inline void set_note(bench_case& timing, std::string_view name, std::string_view value,
                     const std::string& line) {
  const auto one_of = [&](std::string& member, auto... valid) {
    if (!((value == valid) || ...)) {
      throw std::runtime_error("\"" + std::string(value) + "\" is not a value of " +
                               std::string(name) + ", in: " + line);
    }
    member = value;
  };
  if (name == "beside") return one_of(timing.beside, "plain", "square", "one_thread", "f32");
  if (name == "lengths") return one_of(timing.lengths, "zipf");
  if (name == "isa") return one_of(timing.isa, "cpu_generic", "cpu_avx2", "cpu_avx512");
  if (name == "threads") {
    timing.threads = static_cast<int>(number_in(value, line));
    return;
  }
  if (name == "goal" && value.find(':') != std::string_view::npos) {
    const std::size_t colon = value.find(':');
    timing.goal.value = number_in(value.substr(colon + 1), line);
    value = value.substr(0, colon);
    return one_of(timing.goal.quantity, "peak", "read", "rate", "time");
  }
  throw std::runtime_error("\"" + std::string(name) + "\" is not a note, in: " + line);
}

}  // namespace detail

/// Reads one line that is neither empty nor a comment. Throws std::runtime_error that names the
/// line.
inline bench_case parse_case(const std::string& line, const std::string& group) {
  bench_case timing;
  timing.group = group;
  const std::size_t mark = line.find('#');
  timing.problem = line.substr(0, mark);
  timing.problem.erase(timing.problem.find_last_not_of(" \t\r") + 1);
  if (mark == std::string::npos) return timing;
  std::istringstream notes(line.substr(mark + 1));
  for (std::string note; notes >> note;) {
    const std::size_t equals = note.find('=');
    if (equals == std::string::npos) {
      throw std::runtime_error("\"" + note + "\" is not name=value, in: " + line);
    }
    detail::set_note(timing, std::string_view(note).substr(0, equals),
                     std::string_view(note).substr(equals + 1), line);
  }
  return timing;
}

/// What is told apart in a list: group, problem and how it is run.
inline std::string name_of(const bench_case& timing) {
  std::string name = timing.group + "/" + timing.problem;
  if (!timing.lengths.empty()) name += " lengths=" + timing.lengths;
  if (!timing.isa.empty()) name += " isa=" + timing.isa;
  if (timing.threads > 0) name += " threads=" + std::to_string(timing.threads);
  return name;
}

/// The cases of `*.txt` in a folder that begin with one of `ops`, in the order of file names.
inline std::vector<bench_case> read_cases(const std::filesystem::path& folder,
                                          std::span<const std::string_view> ops) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<bench_case> cases;
  for (const std::filesystem::path& path : files) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      if (line.empty() || line.front() == '#') continue;
      const std::string op = line.substr(0, line.find(' '));
      if (std::find(ops.begin(), ops.end(), op) == ops.end()) continue;
      cases.push_back(parse_case(line, path.stem().string()));
    }
  }
  return cases;
}

}  // namespace tessera::bench
