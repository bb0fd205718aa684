// DLPack both ways: types, devices, strides, offsets, flags, lifetime, refusals.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/interop/dlpack.hpp>

#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif

namespace tessera::test {
namespace {

using plain = dlpack::managed_tensor;
using versioned = dlpack::managed_tensor_versioned;

// The layout that other libraries were compiled with (64-bit).
static_assert(sizeof(dlpack::tensor) == 48 && offsetof(dlpack::tensor, device) == 8 &&
              offsetof(dlpack::tensor, ndim) == 16 && offsetof(dlpack::tensor, dtype) == 20 &&
              offsetof(dlpack::tensor, shape) == 24 && offsetof(dlpack::tensor, strides) == 32 &&
              offsetof(dlpack::tensor, byte_offset) == 40);
static_assert(sizeof(plain) == 64 && offsetof(plain, manager_ctx) == 48 &&
              offsetof(plain, deleter) == 56);
static_assert(sizeof(versioned) == 80 && offsetof(versioned, manager_ctx) == 8 &&
              offsetof(versioned, deleter) == 16 && offsetof(versioned, flags) == 24 &&
              offsetof(versioned, dl_tensor) == 32);

/// A foreign library's tensor over `memory`, counting how often it is released.
template <class Managed>
struct foreign {
  alignas(64) float memory[64] = {};
  std::int64_t shape[6] = {2, 3, 4, 1, 1, 1};
  std::int64_t strides[6] = {12, 4, 1, 1, 1, 1};
  int released = 0;
  Managed managed{};

  foreign() {
    managed.dl_tensor.data = memory;
    managed.dl_tensor.ndim = 3;
    managed.dl_tensor.shape = shape;
    managed.dl_tensor.strides = strides;
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) { ++static_cast<foreign*>(self->manager_ctx)->released; };
  }
  std::string refusal() {
    const auto taken = from_dlpack(&managed, "k");
    EXPECT_FALSE(taken);
    return taken.message();
  }
};

template <class Managed>
class dlpack_import : public testing::Test {};
using structs = testing::Types<plain, versioned>;
TYPED_TEST_SUITE(dlpack_import, structs);

TYPED_TEST(dlpack_import, takes_over_and_releases_once) {
  foreign<TypeParam> other;
  {
    auto taken = from_dlpack(&other.managed);
    ASSERT_TRUE(taken) << taken.message();
    const tensor_view seen = taken->view();
    EXPECT_EQ(seen.data, other.memory);
    EXPECT_EQ(seen.type, dtype::f32);
    EXPECT_EQ(seen.rank, 3);
    EXPECT_EQ(seen.extent, (std::array<std::int64_t, max_rank>{2, 3, 4}));
    EXPECT_EQ(seen.stride, (std::array<std::int64_t, max_rank>{12, 4, 1}));
    EXPECT_EQ(seen.device, device_id{});
    EXPECT_FALSE(seen.read_only);
    const dlpack_tensor moved = *std::move(taken);
    EXPECT_EQ(moved.view().data, other.memory);
    EXPECT_EQ(other.released, 0);
  }
  EXPECT_EQ(other.released, 1);
}

TYPED_TEST(dlpack_import, strides_are_any_and_null_is_row_major) {
  foreign<TypeParam> other;
  other.managed.dl_tensor.strides = nullptr;
  EXPECT_EQ(from_dlpack(&other.managed)->view().stride,
            (std::array<std::int64_t, max_rank>{12, 4, 1}));
  other.managed.dl_tensor.strides = other.strides;
  other.strides[0] = 0;
  other.strides[1] = -4;
  EXPECT_EQ(from_dlpack(&other.managed)->view().stride,
            (std::array<std::int64_t, max_rank>{0, -4, 1}));
}

TYPED_TEST(dlpack_import, byte_offset_moves_the_data) {
  foreign<TypeParam> other;
  other.managed.dl_tensor.byte_offset = 8;
  EXPECT_EQ(from_dlpack(&other.managed)->view().data, other.memory + 2);
}

TYPED_TEST(dlpack_import, scalars_and_empty_tensors) {
  foreign<TypeParam> other;
  other.managed.dl_tensor.ndim = 0;
  other.managed.dl_tensor.shape = nullptr;
  other.managed.dl_tensor.strides = nullptr;
  EXPECT_EQ(from_dlpack(&other.managed)->view().elements(), 1);

  foreign<TypeParam> empty;
  empty.shape[1] = 0;
  empty.managed.dl_tensor.data = nullptr;
  const auto taken = from_dlpack(&empty.managed);
  ASSERT_TRUE(taken) << taken.message();
  EXPECT_EQ(taken->view().elements(), 0);
}

TYPED_TEST(dlpack_import, without_deleter) {
  foreign<TypeParam> other;
  other.managed.deleter = nullptr;
  EXPECT_TRUE(from_dlpack(&other.managed));
}

TYPED_TEST(dlpack_import, types) {
  struct known {
    int code, bits;
    dtype type;
  };
  for (const known form : {known{2, 64, dtype::f64},
                           {2, 32, dtype::f32},
                           {2, 16, dtype::f16},
                           {4, 16, dtype::bf16},
                           {0, 32, dtype::i32},
                           {0, 64, dtype::i64},
                           {1, 8, dtype::u8},
                           {6, 8, dtype::u8},
                           {10, 8, dtype::f8_e4m3},
                           {12, 8, dtype::f8_e5m2}}) {
    foreign<TypeParam> other;
    other.managed.dl_tensor.dtype = {std::uint8_t(form.code), std::uint8_t(form.bits), 1};
    const auto taken = from_dlpack(&other.managed);
    ASSERT_TRUE(taken) << taken.message();
    EXPECT_EQ(taken->view().type, form.type);
  }
}

TYPED_TEST(dlpack_import, devices) {
  foreign<TypeParam> other;
  auto& device = other.managed.dl_tensor.device;
  device = {2, 3};
  EXPECT_EQ(from_dlpack(&other.managed)->view().device, (device_id{device_kind::cuda, 3}));
  device = {13, 1};
  EXPECT_EQ(from_dlpack(&other.managed)->view().device, (device_id{device_kind::cuda, 1}));
  device = {3, 7};
  EXPECT_EQ(from_dlpack(&other.managed)->view().device, device_id{});
}

TYPED_TEST(dlpack_import, refusals_leave_the_tensor_to_its_owner) {
  const auto refused = [](auto change) {
    foreign<TypeParam> other;
    change(other, other.managed.dl_tensor);
    const std::string message = other.refusal();
    EXPECT_EQ(other.released, 0);
    return message;
  };
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(refused([](auto&, auto& t) { t.ndim = 6; }), "k: rank is 6, it can be 0 to 5");
  EXPECT_EQ(refused([](auto&, auto& t) { t.ndim = -1; }), "k: rank is -1, it can be 0 to 5");
  EXPECT_EQ(refused([](auto&, auto& t) { t.shape = nullptr; }), "k: shape is null, rank is 3");
  EXPECT_EQ(refused([](auto& o, auto&) { o.shape[1] = -3; }), "k: axis 1 is -3, the least is 0");
  EXPECT_EQ(refused([](auto&, auto& t) { t.data = nullptr; }),
            "k: data is null, it has 24 elements");
  EXPECT_EQ(refused([](auto&, auto& t) { t.byte_offset = 2; }),
            "k: address is 2 bytes past a multiple of the 4 of an element");
  EXPECT_EQ(refused([](auto&, auto& t) { t.byte_offset = ~std::uint64_t{0}; }),
            "k: byte_offset 18446744073709551615 reaches past the last address");
  EXPECT_EQ(refused([](auto& o, auto&) { o.shape[0] = o.shape[1] = std::int64_t{1} << 40; }),
            "k: has more than 2^59 elements");
  EXPECT_EQ(refused([](auto& o, auto&) { o.shape[0] = o.shape[1] = most, o.shape[2] = 0; }),
            "k: has more than 2^59 elements");
  EXPECT_EQ(refused([](auto& o, auto&) { o.strides[0] = most; }),
            "k: strides reach past 2^59 elements");
  EXPECT_EQ(refused([](auto& o, auto&) { o.strides[0] = -most - 1; }),
            "k: strides reach past 2^59 elements");
  EXPECT_EQ(refused([](auto&, auto& t) {
              t.dtype = {2, 32, 4};
            }),
            "k: DLPack type code 2 of 32 bits and 4 lanes has no counterpart");
  EXPECT_EQ(refused([](auto&, auto& t) {
              t.dtype = {5, 64, 1};
            }),
            "k: DLPack type code 5 of 64 bits and 1 lanes has no counterpart");
  EXPECT_EQ(
      refused([](auto&, auto& t) {
        t.device = {10, 0};
      }),
      "k: DLPack device type 10 has no counterpart; known are 1 and 3 (CPU), 2 and 13 (CUDA)");
  EXPECT_EQ(from_dlpack(static_cast<TypeParam*>(nullptr), "k").message(),
            "k: managed tensor is null");
}

TEST(dlpack, version_and_read_only_flag) {
  foreign<versioned> other;
  other.managed.flags = dlpack::flag_read_only | 2;
  EXPECT_TRUE(from_dlpack(&other.managed)->view().read_only);
  other.managed.version = {1, 99};
  EXPECT_TRUE(from_dlpack(&other.managed));
  other.managed.version = {2, 0};
  EXPECT_EQ(other.refusal(), "k: DLPack version is 2.0, this reads 1.x");
}

TEST(dlpack, a_borrowed_tensor_is_only_viewed) {
  foreign<plain> other;
  const auto seen = view_of_dlpack(other.managed.dl_tensor, true);
  ASSERT_TRUE(seen) << seen.message();
  EXPECT_TRUE(seen->read_only);
  EXPECT_EQ(seen->data, other.memory);
  EXPECT_EQ(other.released, 0);
}

TEST(dlpack, export_keeps_the_owner_until_the_consumer_is_done) {
  auto memory = std::make_shared<std::vector<float>>(24, 1.0f);
  const std::weak_ptr<std::vector<float>> watch = memory;
  auto made = to_dlpack(view(memory->data(), {2, 3, 4}, {12, 1, 3}), memory);
  ASSERT_TRUE(made) << made.message();
  memory.reset();
  versioned* given = made->release();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(given->version.major, 1u);
  EXPECT_EQ(given->flags, 0u);
  EXPECT_EQ(given->dl_tensor.ndim, 3);
  EXPECT_EQ(given->dl_tensor.shape[1], 3);
  EXPECT_EQ(given->dl_tensor.strides[1], 1);
  EXPECT_EQ(given->dl_tensor.strides[2], 3);
  EXPECT_EQ(given->dl_tensor.device.device_type, 1);
  given->deleter(given);
  EXPECT_TRUE(watch.expired());

  // Not handed over: released with the handle.
  auto again = std::make_shared<int>(1);
  const std::weak_ptr<int> other = again;
  const float value = 0;
  to_dlpack(view(&value, {1}), std::move(again)).value().reset();
  EXPECT_TRUE(other.expired());
}

TEST(dlpack, what_is_exported_comes_back) {
  alignas(8) std::byte memory[64] = {};
  for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16, dtype::f64, dtype::i32, dtype::i64,
                           dtype::u8, dtype::f8_e4m3, dtype::f8_e5m2}) {
    for (const bool cuda : {false, true}) {
      tensor_view given;
      given.data = memory;
      given.type = type;
      given.rank = 2;
      given.extent = {2, 3};
      given.stride = {0, -1};
      given.read_only = true;
      if (cuda) given.device = {device_kind::cuda, 5};
      auto made = to_dlpack(given, 0);
      ASSERT_TRUE(made) << made.message();
      const auto taken = from_dlpack(made->release());
      ASSERT_TRUE(taken) << taken.message();
      const tensor_view seen = taken->view();
      EXPECT_EQ(seen.data, given.data);
      EXPECT_EQ(seen.shape(), given.shape());
      EXPECT_EQ(seen.stride, given.stride);
      EXPECT_EQ(seen.device, given.device);
      EXPECT_TRUE(seen.read_only);
    }
  }
}

TEST(dlpack, what_cannot_be_exported) {
  const float value = 0;
  EXPECT_EQ(to_dlpack<plain>(view(&value, {1}), 0, "v").message(),
            "v: is read-only, which a managed tensor without version cannot say");
  EXPECT_EQ(to_dlpack(tensor_view{}, 0, "v").message(), "v: is absent");
  tensor_view wrong = view(&value, {1});
  wrong.rank = 9;
  EXPECT_EQ(to_dlpack(wrong, 0, "v").message(), "v: rank is 9, it can be 0 to 5");
}

#if __has_include(<dlpack/dlpack.h>)
TEST(dlpack, structs_of_the_installed_header) {
  float memory[6] = {};
  auto made = to_dlpack<DLManagedTensor>(view(memory, {2, 3}), 0);
  ASSERT_TRUE(made) << made.message();
  EXPECT_EQ((*made)->dl_tensor.dtype.code, kDLFloat);
  EXPECT_EQ((*made)->dl_tensor.device.device_type, kDLCPU);
  const auto taken = from_dlpack(made->release());
  ASSERT_TRUE(taken) << taken.message();
  EXPECT_EQ(taken->view().data, memory);
  static_assert(sizeof(DLManagedTensor) == sizeof(plain));
}
#endif

}  // namespace
}  // namespace tessera::test
