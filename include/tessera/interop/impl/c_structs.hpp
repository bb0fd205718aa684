// From the structs of the C interface to the library's own, and from its refusals to codes. Nothing
// of a caller is trusted: sizes, enumerators, flags and ranks are checked before they are used.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include <tessera/api/context.hpp>
#include <tessera/interop/c.h>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::c {

/// Bytes of the struct in the first version of the interface: what a caller has at least. A struct
/// that grows gets a specialisation with its first size.
template <class Struct>
inline constexpr std::size_t first_size = sizeof(Struct);

inline status refuse(std::string sentence) {
  return {status_code::invalid_argument, std::move(sentence)};
}

/// Copies what the caller's struct has into `known`. What the caller knows and this version does
/// not must be zero.
template <class Struct>
status read_struct(const Struct* given, std::string_view name, Struct& known) {
  constexpr std::size_t largest = 4096;
  known = {};
  const std::size_t size = given->size;
  if (size < first_size<Struct> || size > largest) {
    return refuse(std::string(name) + ": size is " + std::to_string(size) +
                  ", must be the sizeof " + "of the struct, which is " +
                  std::to_string(sizeof(Struct)));
  }
  std::memcpy(&known, given, std::min(size, sizeof(Struct)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t at = sizeof(Struct); at < size; ++at) {
    if (bytes[at] == 0) continue;
    return refuse(std::string(name) + ": byte " + std::to_string(at) +
                  " is set, this library knows " + std::to_string(sizeof(Struct)) +
                  " bytes of the struct; it is older than its caller");
  }
  return {};
}

/// Refuses bits of `flags` beyond `known`.
inline status check_flags(std::string_view name, std::uint64_t flags, std::uint64_t known) {
  if ((flags & ~known) == 0) return {};
  return refuse(std::string(name) + " is " + std::to_string(flags) + ", known bits are " +
                std::to_string(known));
}

/// A field that is 0 or 1.
inline status read_switch(std::string_view name, std::int32_t value, bool& to) {
  if (value != 0 && value != 1) {
    return refuse(std::string(name) + " is " + std::to_string(value) + ", must be 0 or 1");
  }
  to = value == 1;
  return {};
}

/// The view of a tensor; absent for NULL.
inline status read_tensor(const tessera_tensor* given, std::string_view name, tensor_view& to) {
  to = {};
  if (given == nullptr) return {};
  tessera_tensor known;
  if (status done = read_struct(given, name, known); !done) return done;
  const std::string prefix = std::string(name) + ": ";
  const auto within = [&](std::string_view what, std::int64_t value, int least, int most) {
    if (value >= least && value <= most) return status();
    return refuse(prefix + std::string(what) + " is " + std::to_string(value) + ", must be " +
                  std::to_string(least) + " to " + std::to_string(most));
  };
  if (status done = within("dtype", known.dtype, TESSERA_F32, TESSERA_F8_E5M2); !done) return done;
  if (status done = within("rank", known.rank, 1, max_rank); !done) return done;
  if (status done = within("device_kind", known.device_kind, TESSERA_CPU, TESSERA_CUDA); !done) {
    return done;
  }
  constexpr std::uint32_t flags = TESSERA_READ_ONLY | TESSERA_CONTIGUOUS;
  if (status done = check_flags(prefix + "flags", known.flags, flags); !done) return done;
  to.data = known.data;
  to.type = static_cast<dtype>(known.dtype);
  to.rank = static_cast<std::int8_t>(known.rank);
  to.read_only = (known.flags & TESSERA_READ_ONLY) != 0;
  to.device = {static_cast<device_kind>(known.device_kind), known.device_ordinal};
  std::copy_n(known.extent, known.rank, to.extent.begin());
  std::copy_n(known.stride, known.rank, to.stride.begin());
  if ((known.flags & TESSERA_CONTIGUOUS) != 0) {
    to.stride = contiguous_strides(to.extent, to.rank);
  }
  return {};
}

static_assert(static_cast<int>(dtype::f32) == TESSERA_F32);
static_assert(static_cast<int>(dtype::f16) == TESSERA_F16);
static_assert(static_cast<int>(dtype::bf16) == TESSERA_BF16);
static_assert(static_cast<int>(dtype::f64) == TESSERA_F64);
static_assert(static_cast<int>(dtype::i32) == TESSERA_I32);
static_assert(static_cast<int>(dtype::i64) == TESSERA_I64);
static_assert(static_cast<int>(dtype::u8) == TESSERA_U8);
static_assert(static_cast<int>(dtype::f8_e4m3) == TESSERA_F8_E4M3);
static_assert(static_cast<int>(dtype::f8_e5m2) == TESSERA_F8_E5M2);
static_assert(static_cast<int>(device_kind::cuda) == TESSERA_CUDA);
static_assert(max_rank <= TESSERA_MAX_RANK);

/// The code of a refusal: the enumerator's number.
constexpr std::int32_t code_of(status_code code) noexcept {
  return static_cast<std::int32_t>(code);
}
static_assert(code_of(status_code::ok) == TESSERA_OK);
static_assert(code_of(status_code::invalid_argument) == TESSERA_INVALID_ARGUMENT);
static_assert(code_of(status_code::no_row) == TESSERA_NO_ROW);
static_assert(code_of(status_code::ineligible_row) == TESSERA_INELIGIBLE_ROW);
static_assert(code_of(status_code::unknown_row) == TESSERA_UNKNOWN_ROW);
static_assert(code_of(status_code::workspace) == TESSERA_WORKSPACE);
static_assert(code_of(status_code::device) == TESSERA_DEVICE);
static_assert(code_of(status_code::malformed) == TESSERA_MALFORMED);
static_assert(code_of(status_code::io) == TESSERA_IO);

/// Fills the caller's status, if there is one of a size that has room, and returns the code.
inline std::int32_t report(std::int32_t code, std::string_view message,
                           tessera_status* to) noexcept {
  constexpr std::size_t header = offsetof(tessera_status, message);
  if (to == nullptr || to->size <= header) return code;
  const std::size_t room = std::min<std::size_t>(to->size, sizeof(tessera_status)) - header;
  to->code = code;
  const std::size_t length = std::min(message.size(), room - 1);
  std::memcpy(to->message, message.data(), length);
  to->message[length] = '\0';
  return code;
}

/// Carries out `work`, which returns a status; no exception leaves.
template <class Work>
std::int32_t guarded(tessera_status* to, const Work& work) noexcept {
  try {
    const status done = work();
    return report(code_of(done.code()), done.message(), to);
  } catch (const std::bad_alloc&) {
    return report(TESSERA_OUT_OF_MEMORY, "the system has no memory for this call", to);
  } catch (const std::exception& error) {
    return report(TESSERA_INTERNAL, error.what(), to);
  }
}

}  // namespace tessera::c
