// The header path of matrix products: what an epilogue makes of results, and what is refused.
#include "tests/cuda/product_call.hpp"

namespace tessera::device_test {
namespace {

struct hopper_row {
  static constexpr grouped_matmul_config config{.target = backend::cuda_sm90, .type = dtype::bf16};
};
struct small_row {
  static constexpr grouped_matmul_config config{
      .target = backend::cuda_sm80, .type = dtype::bf16, .block_m = 64, .block_n = 64};
};
struct split_row {
  static constexpr grouped_matmul_config config{.target = backend::cuda_sm80,
                                                .type = dtype::bf16,
                                                .block_m = 64,
                                                .block_n = 64,
                                                .block_k = 512};
};

template <class Row>
void expect_marked_groups() {
  product_call<bf16> call;
  const status done = launch<Row>(call.grouped(), grouped_matmul_options{.transpose_rhs = true},
                                  cuda{}, call.epilogue());
  ASSERT_TRUE(done) << done.message();
  call.expect_marked(product_call<bf16>::rows, &product_call<bf16>::group_of);
}

TEST_F(product_functors, see_every_result_of_a_group_once) {
  expect_marked_groups<hopper_row>();
  expect_marked_groups<small_row>();
}

TEST_F(product_functors, follow_the_sums_of_all_parts) {
  product_call<bf16> call;
  const status done = launch<split_row>(
      call.plain(33), grouped_matmul_options{.transpose_rhs = true}, cuda{}, call.epilogue());
  ASSERT_TRUE(done) << done.message();
  call.expect_marked(33, [](std::int64_t) { return std::int64_t{0}; });
}

TEST_F(product_functors, have_no_gradients) {
  product_call<bf16> call;
  grouped_matmul_args args = call.plain(33);
  args.d_out = args.out;
  args.d_out.type = dtype::bf16;
  args.d_lhs = call.gradient_of_lhs(33);
  args.out = {};
  const status done = launch<hopper_row>(args, grouped_matmul_options{.transpose_rhs = true},
                                         cuda{}, call.epilogue());
  EXPECT_EQ(done.message(), "d_out: is given, the gradients of a product take no epilogue");
}

}  // namespace
}  // namespace tessera::device_test
