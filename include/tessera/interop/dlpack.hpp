// DLPack: tensors of other libraries as views, and views as tensors for other libraries, without a
// copy. The structs of the exchange are declared here under our own names; the functions take any
// struct of the same members, so those of an installed <dlpack/dlpack.h> and those that ship inside
// other libraries serve as well.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

namespace dlpack {

// Binary interface, version 1.x: member order and types are fixed.
struct device {
  std::int32_t device_type = 1;
  std::int32_t device_id = 0;
};
struct data_type {
  std::uint8_t code = 2;
  std::uint8_t bits = 32;
  std::uint16_t lanes = 1;
};
struct tensor {
  void* data = nullptr;
  dlpack::device device{};
  std::int32_t ndim = 0;
  data_type dtype{};
  std::int64_t* shape = nullptr;
  std::int64_t* strides = nullptr;  // elements; null: row-major
  std::uint64_t byte_offset = 0;
};
struct managed_tensor {
  tensor dl_tensor{};
  void* manager_ctx = nullptr;
  void (*deleter)(managed_tensor* self) = nullptr;
};
struct pack_version {
  std::uint32_t major = 1;
  std::uint32_t minor = 0;
};
struct managed_tensor_versioned {
  pack_version version{};
  void* manager_ctx = nullptr;
  void (*deleter)(managed_tensor_versioned* self) = nullptr;
  std::uint64_t flags = 0;
  tensor dl_tensor{};
};

inline constexpr std::uint64_t flag_read_only = 1;
enum device_type : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13 };
enum type_code : std::uint8_t {
  signed_integer = 0,
  unsigned_integer = 1,
  floating = 2,
  bfloat = 4,
  boolean = 6,
  float8_e4m3fn = 10,
  float8_e5m2 = 12,
  float8_e8m0fnu = 14
};

/// A tensor struct with the members of `dlpack::tensor`.
template <class Tensor>
concept tensor_like = requires(const Tensor& tensor) {
  { tensor.data } -> std::convertible_to<const void*>;
  { tensor.ndim } -> std::convertible_to<std::int64_t>;
  { tensor.shape } -> std::convertible_to<const std::int64_t*>;
  { tensor.strides } -> std::convertible_to<const std::int64_t*>;
  { tensor.byte_offset } -> std::convertible_to<std::uint64_t>;
  tensor.dtype.lanes;
  tensor.device.device_type;
};

/// A managed tensor struct, with or without version and flags.
template <class Managed>
concept managed_like = requires(Managed& managed) {
  requires tensor_like<std::remove_cvref_t<decltype(managed.dl_tensor)>>;
  managed.manager_ctx;
  managed.deleter(&managed);
};
template <class Managed>
concept versioned_like = managed_like<Managed> && requires(Managed& managed) {
  managed.version.major;
  managed.flags;
};

/// Releases a managed tensor the way its maker wants.
struct release {
  template <class Managed>
  void operator()(Managed* managed) const noexcept {
    if (managed->deleter != nullptr) managed->deleter(managed);
  }
};
/// An exported tensor; `release()` hands it to the consumer, who calls its deleter.
template <class Managed>
using handle = std::unique_ptr<Managed, release>;

/// The element type, or `none` for one that has no counterpart.
constexpr dtype dtype_of_code(unsigned code, unsigned bits) noexcept {
  switch (code << 8 | bits) {
    case floating << 8 | 64:
      return dtype::f64;
    case floating << 8 | 32:
      return dtype::f32;
    case floating << 8 | 16:
      return dtype::f16;
    case bfloat << 8 | 16:
      return dtype::bf16;
    case signed_integer << 8 | 64:
      return dtype::i64;
    case signed_integer << 8 | 32:
      return dtype::i32;
    case signed_integer << 8 | 8:
      return dtype::i8;
    case unsigned_integer << 8 | 32:
      return dtype::u32;
    case unsigned_integer << 8 | 8:
    case boolean << 8 | 8:
      return dtype::u8;
    case float8_e4m3fn << 8 | 8:
      return dtype::f8_e4m3;
    case float8_e5m2 << 8 | 8:
      return dtype::f8_e5m2;
    case float8_e8m0fnu << 8 | 8:
      return dtype::f8_e8m0;
    default:
      return dtype::none;
  }
}

constexpr data_type code_of(dtype type) noexcept {
  const auto bits = static_cast<std::uint8_t>(8 * size_of(type));
  switch (type) {
    case dtype::f64:
    case dtype::f32:
    case dtype::f16:
      return {floating, bits, 1};
    case dtype::bf16:
      return {bfloat, bits, 1};
    case dtype::i64:
    case dtype::i32:
    case dtype::i8:
      return {signed_integer, bits, 1};
    case dtype::u8:
    case dtype::u32:
      return {unsigned_integer, bits, 1};
    case dtype::f8_e4m3:
      return {float8_e4m3fn, bits, 1};
    case dtype::f8_e5m2:
      return {float8_e5m2, bits, 1};
    case dtype::f8_e8m0:
      return {float8_e8m0fnu, bits, 1};
    case dtype::u4x2:  // DLPack counts codes, not the bytes that hold two
    case dtype::none:
      break;
  }
  return {0, 0, 0};
}

namespace detail {

/// a * b, or nothing past 63 bits; both are at least 0.
constexpr bool multiply(std::int64_t a, std::int64_t b, std::int64_t& product) noexcept {
  if (a != 0 && b > std::numeric_limits<std::int64_t>::max() / a) return false;
  product = a * b;
  return true;
}

/// Checks that all addresses of the tensor lie within 2^62 bytes of the first.
inline bool addresses_fit(const tensor_view& view) noexcept {
  std::int64_t reach = 0, count = 1;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(view.rank); ++axis) {
    const std::int64_t size = view.extent[axis];
    if (!multiply(count, size > 0 ? size : 1, count)) return false;
    if (view.stride[axis] == std::numeric_limits<std::int64_t>::min()) return false;
    const std::int64_t step = view.stride[axis] < 0 ? -view.stride[axis] : view.stride[axis];
    std::int64_t own = 0;
    if (!multiply(size > 0 ? size - 1 : 0, step, own)) return false;
    if (own > (std::int64_t{1} << 59) - reach) return false;
    reach += own;
  }
  return count <= std::int64_t{1} << 59;
}

}  // namespace detail
}  // namespace dlpack

/// A view of a borrowed DLPack tensor; it lives as long as the owner says. `name` is for messages.
/// Memory of CUDA devices is not touched; pinned host memory counts as the CPU's.
template <dlpack::tensor_like Tensor>
result<tensor_view> view_of_dlpack(const Tensor& tensor, bool read_only = false,
                                   std::string_view name = "tensor") {
  const auto refuse = [&](const std::string& fact) {
    return status(status_code::invalid_argument, std::string(name) + ": " + fact);
  };
  tensor_view seen;
  seen.read_only = read_only;
  const auto code = static_cast<unsigned>(tensor.dtype.code);
  seen.type = dlpack::dtype_of_code(code, tensor.dtype.bits);
  if (!seen.present() || tensor.dtype.lanes != 1) {
    return refuse("DLPack type code " + std::to_string(code) + " of " +
                  std::to_string(tensor.dtype.bits) + " bits and " +
                  std::to_string(tensor.dtype.lanes) + " lanes has no counterpart");
  }
  const auto kind = static_cast<std::int64_t>(tensor.device.device_type);
  const bool host = kind == dlpack::cpu || kind == dlpack::cuda_host;
  if (!host && kind != dlpack::cuda && kind != dlpack::cuda_managed) {
    return refuse("DLPack device type " + std::to_string(kind) +
                  " has no counterpart; known are 1 and 3 (CPU), 2 and 13 (CUDA)");
  }
  if (!host) seen.device = {device_kind::cuda, tensor.device.device_id};
  if (tensor.ndim < 0 || tensor.ndim > max_rank) {
    return refuse("rank is " + std::to_string(tensor.ndim) + ", it can be 0 to " +
                  std::to_string(max_rank));
  }
  if (tensor.ndim > 0 && tensor.shape == nullptr) {
    return refuse("shape is null, rank is " + std::to_string(tensor.ndim));
  }
  seen.rank = static_cast<std::int8_t>(tensor.ndim);
  bool empty = false;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(seen.rank); ++axis) {
    seen.extent[axis] = tensor.shape[axis];
    empty = empty || seen.extent[axis] == 0;
    if (seen.extent[axis] < 0) {
      return refuse("axis " + std::to_string(axis) + " is " + std::to_string(seen.extent[axis]) +
                    ", the least is 0");
    }
  }
  // Row-major strides are products of the extents: count those first.
  if (!dlpack::detail::addresses_fit(seen)) return refuse("has more than 2^59 elements");
  seen.stride = contiguous_strides(seen.extent, seen.rank);
  if (tensor.strides != nullptr) {
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(seen.rank); ++axis) {
      seen.stride[axis] = tensor.strides[axis];
    }
  }
  if (!dlpack::detail::addresses_fit(seen)) return refuse("strides reach past 2^59 elements");
  if (empty) return seen;
  if (tensor.data == nullptr) {
    return refuse("data is null, it has " + std::to_string(seen.elements()) + " elements");
  }
  const auto base = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (tensor.byte_offset > std::numeric_limits<std::uintptr_t>::max() - base) {
    return refuse("byte_offset " + std::to_string(tensor.byte_offset) +
                  " reaches past the last address");
  }
  const std::size_t element_bytes = size_of(seen.type);
  if ((base + tensor.byte_offset) % element_bytes != 0) {
    return refuse("address is " + std::to_string((base + tensor.byte_offset) % element_bytes) +
                  " bytes past a multiple of the " + std::to_string(element_bytes) +
                  " of an element");
  }
  seen.data = const_cast<char*>(static_cast<const char*>(tensor.data)) + tensor.byte_offset;
  return seen;
}

/// An imported tensor: a view, and the duty to release the memory behind it.
class dlpack_tensor {
 public:
  /// Takes over `managed`, which `view` shows. Made by `from_dlpack`.
  template <dlpack::managed_like Managed>
  dlpack_tensor(const tensor_view& view, Managed* managed)
      : view_(view),
        owner_(managed, [](void* owned) { dlpack::release()(static_cast<Managed*>(owned)); }) {}

  const tensor_view& view() const noexcept { return view_; }

 private:
  tensor_view view_;
  std::unique_ptr<void, void (*)(void*)> owner_;
};

/// Takes over a managed tensor: its deleter runs when the result goes. A refused tensor stays the
/// caller's. Versioned tensors must be of version 1; their read-only flag becomes the view's.
template <dlpack::managed_like Managed>
result<dlpack_tensor> from_dlpack(Managed* managed, std::string_view name = "tensor") {
  const auto refuse = [&](const std::string& fact) {
    return status(status_code::invalid_argument, std::string(name) + ": " + fact);
  };
  if (managed == nullptr) return refuse("managed tensor is null");
  bool read_only = false;
  if constexpr (dlpack::versioned_like<Managed>) {
    if (managed->version.major != 1) {
      return refuse("DLPack version is " + std::to_string(managed->version.major) + "." +
                    std::to_string(managed->version.minor) + ", this reads 1.x");
    }
    read_only = (managed->flags & dlpack::flag_read_only) != 0;
  }
  auto view = view_of_dlpack(managed->dl_tensor, read_only, name);
  if (!view) return view.failure();
  return dlpack_tensor(*view, managed);
}

/// Makes a managed tensor of `view`. `owner` (anything that can be moved, such as a shared_ptr) is
/// kept until the consumer calls the deleter. A read-only view needs a versioned struct, the only
/// one that can say so; it is the default. Booleans travel as u8.
template <dlpack::managed_like Managed = dlpack::managed_tensor_versioned, class Owner>
result<dlpack::handle<Managed>> to_dlpack(const tensor_view& view, Owner owner,
                                          std::string_view name = "tensor") {
  const auto refuse = [&](const std::string& fact) {
    return status(status_code::invalid_argument, std::string(name) + ": " + fact);
  };
  if (!view.present()) return refuse("is absent");
  if (view.rank < 0 || view.rank > max_rank) {
    return refuse("rank is " + std::to_string(view.rank) + ", it can be 0 to " +
                  std::to_string(max_rank));
  }
  if (view.read_only && !dlpack::versioned_like<Managed>) {
    return refuse("is read-only, which a managed tensor without version cannot say");
  }
  struct holder {
    Managed managed{};
    std::array<std::int64_t, max_rank> extent{}, stride{};
    Owner owner;
    explicit holder(Owner&& kept) : owner(std::move(kept)) {}
  };
  auto held = std::make_unique<holder>(std::move(owner));
  held->extent = view.extent;
  held->stride = view.stride;
  Managed& managed = held->managed;
  auto& tensor = managed.dl_tensor;
  const dlpack::data_type type = dlpack::code_of(view.type);
  tensor.data = view.data;
  tensor.ndim = view.rank;
  tensor.dtype.code = static_cast<decltype(tensor.dtype.code)>(type.code);
  tensor.dtype.bits = type.bits;
  tensor.dtype.lanes = type.lanes;
  const bool host = view.device.kind == device_kind::cpu;
  tensor.device.device_type = static_cast<decltype(tensor.device.device_type)>(
      host ? dlpack::device_type::cpu : dlpack::device_type::cuda);
  tensor.device.device_id = host ? 0 : view.device.ordinal;
  tensor.shape = held->extent.data();
  tensor.strides = held->stride.data();
  tensor.byte_offset = 0;
  if constexpr (dlpack::versioned_like<Managed>) {
    managed.version.major = 1;
    managed.version.minor = 0;
    managed.flags = view.read_only ? dlpack::flag_read_only : 0;
  }
  managed.manager_ctx = held.get();
  managed.deleter = [](Managed* self) { delete static_cast<holder*>(self->manager_ctx); };
  return dlpack::handle<Managed>(&held.release()->managed);
}

}  // namespace tessera
