// From the structs of the C interface to the library's own, and from its refusals to codes. Nothing
// of a caller is trusted: sizes, enumerators, flags and ranks are checked before they are used.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/api/context.hpp>
#include <tessera/interop/c.h>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::c {

inline status refuse(std::string sentence) {
  return {status_code::invalid_argument, std::move(sentence)};
}

/// A struct of a caller as sentences name it: "context", "args of flash_attention".
struct struct_name {
  std::string_view name;
  std::string_view of{};
  std::string text() const {
    return std::string(name) + (of.empty() ? "" : " of ") + std::string(of);
  }
};

/// Copies what the caller's struct has into `known`, whose rest becomes zero. A caller has at least
/// the `least` bytes of the first release; what it knows and this version does not must be zero.
inline status read_bytes(const void* from, struct_name name, std::size_t least,
                         std::span<std::byte> known) {
  constexpr std::size_t largest = 4096;
  std::uint32_t size = 0;
  std::memcpy(&size, from, sizeof size);
  if (size < least || size > largest || size % sizeof(void*) != 0) {
    return refuse(name.text() + ": size is " + std::to_string(size) +
                  ", must be the sizeof of the struct, which is " + std::to_string(known.size()));
  }
  const auto* const bytes = static_cast<const std::byte*>(from);
  const std::size_t common = std::min<std::size_t>(size, known.size());
  std::memcpy(known.data(), bytes, common);
  std::fill(known.begin() + static_cast<std::ptrdiff_t>(common), known.end(), std::byte{});
  for (std::size_t at = known.size(); at < size; ++at) {
    if (bytes[at] == std::byte{}) continue;
    return refuse(name.text() + ": byte " + std::to_string(at) + " is set, this library knows " +
                  std::to_string(known.size()) +
                  " bytes of the struct; it is older than its caller");
  }
  return {};
}

/// Bytes of the struct in the first release of the interface. A struct that grows gets a
/// specialisation.
template <class Struct>
inline constexpr std::size_t first_size = sizeof(Struct);

/// The same for a struct of c.h.
template <class Struct>
status read_struct(const Struct* from, struct_name name, Struct& known) {
  return read_bytes(from, name, first_size<Struct>,
                    std::as_writable_bytes(std::span<Struct, 1>(&known, 1)));
}

/// Refuses bits of a field beyond `known`: "options of attention: given is 512, known bits are
/// 511".
inline status check_flags(struct_name name, std::string_view field, std::uint64_t flags,
                          std::uint64_t known) {
  if ((flags & ~known) == 0) return {};
  return refuse(name.text() + ": " + std::string(field) + " is " + std::to_string(flags) +
                ", known bits are " + std::to_string(known));
}

/// The view of a tensor; absent for NULL.
inline status read_tensor(const tessera_tensor* from, std::string_view name, tensor_view& to) {
  to = {};
  if (from == nullptr) return {};
  tessera_tensor known;
  if (status done = read_struct(from, {name}, known); !done) return done;
  struct number {
    std::string_view field;
    std::int32_t value, least, most;
  };
  for (const number& read : {number{"dtype", known.dtype, TESSERA_F32, TESSERA_U4X2},
                             number{"rank", known.rank, 1, max_rank},
                             number{"device_kind", known.device_kind, TESSERA_CPU, TESSERA_CUDA}}) {
    if (read.value >= read.least && read.value <= read.most) continue;
    return refuse(std::string(name) + ": " + std::string(read.field) + " is " +
                  std::to_string(read.value) + ", must be " + std::to_string(read.least) + " to " +
                  std::to_string(read.most));
  }
  constexpr std::uint32_t flags = TESSERA_READ_ONLY | TESSERA_CONTIGUOUS;
  if (status done = check_flags({name}, "flags", known.flags, flags); !done) return done;
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
static_assert(static_cast<int>(dtype::i8) == TESSERA_I8);
static_assert(static_cast<int>(dtype::u32) == TESSERA_U32);
static_assert(static_cast<int>(dtype::f8_e8m0) == TESSERA_F8_E8M0);
static_assert(static_cast<int>(dtype::u4x2) == TESSERA_U4X2);
static_assert(dtype_names.size() == TESSERA_U4X2 + 1);
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
