// What tests of the tuner need to be quick and to leave nothing behind.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include <gtest/gtest.h>
#include <stdlib.h>

#include "tools/tuner/measure.hpp"

namespace tessera::testing {

using namespace tessera::tuner;

/// Rules under which a test takes little time.
inline measuring_rules quick_rules() {
  measuring_rules rules;
  rules.least_rounds = 5;
  rules.most_rounds = 15;
  rules.race_seconds = 0.5;
  rules.limit_seconds = 2;
  rules.sample_seconds = 0;
  rules.lost_share = 1e9;  // no test depends on what else the machine does
  return rules;
}

/// A folder that is removed with the object.
class scratch_folder {
 public:
  scratch_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera-tuner-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no folder " << name;
    path_ = name;
  }
  ~scratch_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace tessera::testing
