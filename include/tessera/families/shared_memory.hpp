// What families say of rows whose blocks need more shared memory than some GPUs have.
#pragma once

#include <string>

#include <tessera/spec/device_facts.hpp>
#include <tessera/spec/sentence.hpp>

namespace tessera {

/// Why a device does not run a row that asks for `needed` bytes of shared memory a block.
[[gnu::cold]] inline std::string missing_shared_memory(int needed, const device_facts& device) {
  return sentence({"the row needs ", needed,
                   " bytes of shared memory for a block, this device has ",
                   device.shared_bytes_per_block});
}

}  // namespace tessera
