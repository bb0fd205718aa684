// Device facts as JSON, both ways: what `doctor --json` prints, `explain --device` reads. Ceilings,
// one way.
#pragma once

#include <string>

#include <boost/json/object.hpp>

#include <tessera/runtime/device_facts.hpp>

#include "bench/support/device_ceilings.hpp"

namespace tessera::tool {

boost::json::object to_json(const device_facts& facts);
boost::json::object to_json(const bench::device_ceilings& limits);

/// Reads the facts from a JSON object, or from its member `device` if it has one (what doctor says
/// of the machine, and of each GPU in `cuda.gpus`). Members that are absent keep their defaults;
/// unknown ones are refused.
device_facts read_device(const std::string& path);

}  // namespace tessera::tool
