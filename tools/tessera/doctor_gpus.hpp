// The GPUs of this machine for `tessera doctor`: facts, versions, measured ceilings.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/device_memory.hpp>

#include "bench/support/device_ceilings.hpp"
#include "doctor_checks.hpp"

namespace tessera::tool {

/// One GPU; without ceilings `refusal` says why they could not be measured.
struct examined_gpu {
  device_facts facts{};
  std::optional<bench::device_ceilings> limits;
  std::string refusal;
};

struct examined_gpus {
  cuda_versions versions{};
  std::vector<examined_gpu> gpus;
};

/// Looks at every GPU and measures it.
examined_gpus examine_gpus();

/// A build with CUDA and no driver, GPUs that no row is for, GPUs that refuse.
void check_gpus(const examined_gpus& found, std::vector<finding>& findings);

boost::json::object to_json(const examined_gpus& found);

/// A section per GPU; one line where there is none.
void print_gpus(const examined_gpus& found);

}  // namespace tessera::tool
