// What tests of the tuner need to be quick and to leave nothing behind.
#pragma once

#include "tests/support/scratch_folder.hpp"
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

}  // namespace tessera::testing
