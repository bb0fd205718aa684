// Runs the built command as a user does and keeps what it said.
#pragma once

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/scratch_folder.hpp"

namespace tessera::testing {

namespace fs = std::filesystem;

/// How a command ended. A signal shows as status 128 + its number, as shells do.
struct outcome {
  int status = -1;
  std::string out;
  std::string err;
};

inline std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void write_file(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// Runs `tessera <arguments>` through the shell; `prefix` may set environment variables.
inline outcome invoke(const std::string& arguments, const std::string& prefix = "") {
  const scratch_folder folder;
  const std::string errors = folder / "stderr";
  const std::string line = prefix + " '" TESSERA_COMMAND "' " + arguments + " 2>'" + errors + "'";
  outcome result;
  FILE* pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> block{};
  for (std::size_t got = 0; (got = fread(block.data(), 1, block.size(), pipe)) > 0;) {
    result.out.append(block.data(), got);
  }
  const int ended = pclose(pipe);
  result.status = WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended);
  result.err = contents_of(errors);
  return result;
}

/// stdout as one JSON document.
inline boost::json::value json_of(const outcome& ended) {
  boost::system::error_code error;
  boost::json::value value = boost::json::parse(ended.out, error);
  EXPECT_FALSE(error) << error.message() << " in:\n" << ended.out << ended.err;
  return value;
}

inline std::string golden(std::string_view name) {
  return std::string(TESSERA_GOLDEN_DIR "/") + std::string(name) + ".safetensors";
}

inline std::string model(std::string_view name) {
  return std::string(TESSERA_MODELS_DIR "/") + std::string(name) + ".json";
}

/// Status 2, nothing on stdout, one line on stderr that contains `fact`.
inline void expect_refusal(const outcome& ended, std::string_view fact) {
  EXPECT_EQ(ended.status, 2) << ended.out << ended.err;
  EXPECT_EQ(ended.out, "");
  EXPECT_NE(ended.err.find(fact), std::string::npos) << "lacks '" << fact << "': " << ended.err;
}

}  // namespace tessera::testing
