// The rows of this build. One generated unit per family defines the function; the runtime and the
// tools only read what it returns.
#pragma once

#include <span>

#include <tessera/spec/flash_attention/instance.hpp>

namespace tessera {

/// Every flash attention forward row of this build, sorted by name. Constant data: the call costs
/// nothing and the span is valid for the life of the program.
std::span<const flash_instance> flash_fwd_registry() noexcept;

}  // namespace tessera
