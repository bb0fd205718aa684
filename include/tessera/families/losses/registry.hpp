// The rows of fused losses of this build, defined by a generated unit.
#pragma once

#include <span>
#include <string_view>

#include <tessera/spec/instance.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

struct family;

/// The family of this build; see runtime/family.hpp.
extern const family losses_record;

/// Every row of the family in this build, sorted by name. Constant data.
std::span<const instance> losses_registry() noexcept;

/// A digest of the sources that the rows for one kind of device were compiled from; see
/// mean_pooling_code_version.
std::string_view losses_code_version(device_kind kind) noexcept;

}  // namespace tessera
