// The rows of linear attention with decay of this build, defined by a generated unit.
#pragma once

#include <span>
#include <string_view>

#include <tessera/spec/instance.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

struct family;

/// The family of this build; see runtime/family.hpp.
extern const family chunked_scan_record;

/// Every row of the family in this build, sorted by name. Constant data: the call costs nothing and
/// the span is valid for the life of the program.
std::span<const instance> chunked_scan_registry() noexcept;

/// A digest of the sources that the rows for one kind of device were compiled from: 16 hexadecimal
/// digits; empty where the family has no kernels for such devices. Measurements taken with other
/// sources carry another one.
std::string_view chunked_scan_code_version(device_kind kind) noexcept;

}  // namespace tessera
