// The families that can be tuned; each is defined in families/.
#pragma once

#include "tunable_family.hpp"

namespace tessera::tuner {

const tunable_family& tunable_attention();
const tunable_family& tunable_mean_pooling();

}  // namespace tessera::tuner
