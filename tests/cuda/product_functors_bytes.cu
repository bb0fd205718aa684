// The header path of products of 8-bit elements with scales: an epilogue sees scaled results.
#include "tests/cuda/product_call.hpp"

namespace tessera::device_test {
namespace {

struct codes_row {
  static constexpr grouped_matmul_config config{.target = backend::cuda_sm90,
                                                .type = dtype::f8_e4m3};
};

struct bytes_row {
  static constexpr grouped_matmul_config config{.target = backend::cuda_sm90, .type = dtype::i8};
};

template <class Row, class Element>
void expect_marked_codes() {
  product_call<Element> call;
  const status done = launch<Row>(call.scaled(), scaled_matmul_options{}, cuda{}, call.epilogue());
  ASSERT_TRUE(done) << done.message();
  call.expect_marked(product_call<Element>::rows, &product_call<Element>::group_of);
}

TEST_F(product_functors, follow_the_scales_of_elements_of_8_bits) {
  expect_marked_codes<codes_row, f8_e4m3>();
  expect_marked_codes<bytes_row, std::int8_t>();
}

}  // namespace
}  // namespace tessera::device_test
