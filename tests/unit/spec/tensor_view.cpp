#include <array>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/spec/backend.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace {

using tessera::dtype;
using tessera::tensor_view;

TEST(tensor_view, default_is_absent) {
  constexpr tensor_view absent;
  EXPECT_FALSE(absent.present());
  EXPECT_EQ(absent.elements(), 1);
  EXPECT_FALSE(absent.shape().present());
}

TEST(tensor_view, strides_default_to_row_major) {
  std::vector<float> values(24);
  const tensor_view made = tessera::view(values.data(), {2, 3, 4});
  EXPECT_EQ(made.data, values.data());
  EXPECT_EQ(made.type, dtype::f32);
  EXPECT_EQ(made.rank, 3);
  EXPECT_FALSE(made.read_only);
  EXPECT_EQ(made.elements(), 24);
  EXPECT_EQ(made.stride[0], 12);
  EXPECT_EQ(made.stride[1], 4);
  EXPECT_EQ(made.stride[2], 1);
}

TEST(tensor_view, given_strides_are_kept) {
  std::vector<tessera::bf16> values(64);
  const tensor_view made = tessera::view(values.data() + 32, {2, 3}, {0, -5});
  EXPECT_EQ(made.type, dtype::bf16);
  EXPECT_EQ(made.stride[0], 0);
  EXPECT_EQ(made.stride[1], -5);
}

TEST(tensor_view, pointers_to_const_are_read_only) {
  const std::array<std::int32_t, 3> ids{1, 2, 3};
  EXPECT_TRUE(tessera::view(ids.data(), {3}).read_only);
}

TEST(tensor_view, zero_extents_have_no_elements) {
  float value = 0;
  EXPECT_EQ(tessera::view(&value, {2, 0, 4}).elements(), 0);
  EXPECT_EQ(tessera::view(&value, {2, 0, 4}).stride[0], 0);
}

TEST(tensor_view, shape_forgets_pointer_and_strides) {
  std::vector<float> values(6), other(12);
  EXPECT_EQ(tessera::view(values.data(), {2, 3}).shape(),
            tessera::view(other.data(), {2, 3}, {6, 2}).shape());
}

TEST(backend, names_round_trip) {
  for (const tessera::backend target : tessera::all_backends) {
    EXPECT_EQ(tessera::backend_named(name_of(target)), target);
    EXPECT_EQ(is_cpu(target), name_of(target).starts_with("cpu_"));
    EXPECT_NE(is_cpu(target), is_cuda(target));
    EXPECT_GT(vector_floats(target), 0);
  }
  EXPECT_FALSE(tessera::backend_named("cpu"));
  EXPECT_FALSE(tessera::backend_named(""));
}

TEST(status, success_is_silent_and_failures_speak) {
  const tessera::status fine;
  EXPECT_TRUE(fine);
  EXPECT_EQ(fine.code(), tessera::status_code::ok);
  EXPECT_TRUE(fine.message().empty());
  EXPECT_NO_THROW(tessera::throw_if_failed(fine));

  const tessera::status failed(tessera::status_code::io, "x.safetensors: 3 bytes, needs 8");
  EXPECT_FALSE(failed);
  EXPECT_EQ(name_of(failed.code()), "io");
  try {
    tessera::throw_if_failed(failed);
    FAIL() << "nothing thrown";
  } catch (const tessera::error& thrown) {
    EXPECT_EQ(thrown.code(), tessera::status_code::io);
    EXPECT_STREQ(thrown.what(), "x.safetensors: 3 bytes, needs 8");
  }
}

TEST(status, result_holds_a_value_or_a_reason) {
  tessera::result<int> value(7);
  ASSERT_TRUE(value);
  EXPECT_EQ(*value, 7);
  EXPECT_EQ(value.value(), 7);
  tessera::result<int> none(tessera::status(tessera::status_code::malformed, "no number"));
  EXPECT_FALSE(none);
  EXPECT_EQ(none.code(), tessera::status_code::malformed);
  EXPECT_EQ(none.message(), "no number");
  EXPECT_THROW(none.value(), tessera::error);
}

}  // namespace
