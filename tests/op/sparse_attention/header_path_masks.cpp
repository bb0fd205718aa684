// Mask functors on the header path of blocksparse attention, forward and backward: random calls
// whose mask a functor says instead of a tensor, against the definition; functors that say what
// options say have their bits.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/sparse_attention/declaration.hpp>
#include <tessera/launch.hpp>
#include <tessera/sparse_attention.hpp>

#include "tests/op/sparse_attention/functors.hpp"
#include "tests/support/call_data.hpp"
#include "tests/support/call_judge.hpp"

namespace {

using namespace tessera::support;
using tessera::sparse_pass;

template <sparse_pass Pass>
struct row {
  static constexpr tessera::sparse_attention_config config{.target = tessera::native_cpu_backend,
                                                           .pass = Pass};
};

/// Calls with a mask, which reaches the kernel as a functor: what is written is right.
template <class Row, class Args, class Mask>
void expect_right(const tessera::operation& op) {
  int judged = 0;
  for (std::uint64_t index = 0; judged < 25; ++index) {
    SCOPED_TRACE(std::string(op.name) + " " + std::to_string(index));
    random_source random = stream(91, index);
    const auto data = drawn_call(op, random, {});
    ASSERT_NE(data, nullptr);
    Args args = *reinterpret_cast<const Args*>(data->tensors());
    if (!args.mask.present()) continue;
    ++judged;
    const auto& options =
        *static_cast<const tessera::blocksparse_attention_options*>(data->options());
    const Mask mask(args.mask);
    args.mask = {};
    const call_expectation expectation(data->call());
    for (const int threads : {1, 2}) {
      data->reset();
      const auto done = tessera::launch<Row>(args, options, tessera::cpu{.threads = threads},
                                             tessera::with_mask(mask));
      ASSERT_TRUE(done) << done.message();
      EXPECT_EQ(expectation.complaints(data->tensors()), "");
      EXPECT_TRUE(data->intact()) << "bytes outside the output were written";
    }
    if (testing::Test::HasFailure()) return;
  }
}

template <class Mask>
void expect_right_both_ways() {
  expect_right<row<sparse_pass::forward>, tessera::blocksparse_attention_args, Mask>(
      tessera::blocksparse_table::operations[0]);
  expect_right<row<sparse_pass::backward>, tessera::blocksparse_attention_backward_args, Mask>(
      tessera::blocksparse_table::backward_operations[0]);
}

TEST(blocksparse_header_path, functors_are_asked_pair_by_pair) {
  expect_right_both_ways<shown_bytes>();
}

TEST(blocksparse_header_path, functors_speak_for_tiles) {
  expect_right_both_ways<classified_bytes>();
}

TEST(blocksparse_header_path, functors_have_the_bits_of_options) {
  sparse_call<> call(150, 190, 24, 16);
  const auto run = [&](const tessera::blocksparse_attention_options& options, const auto& hooks) {
    call.clear();
    const auto forward =
        tessera::launch<row<sparse_pass::forward>>(call.args(), options, tessera::cpu{}, hooks);
    EXPECT_TRUE(forward) << forward.message();
    const auto backward = tessera::launch<row<sparse_pass::backward>>(call.backward_args(), options,
                                                                      tessera::cpu{}, hooks);
    EXPECT_TRUE(backward) << backward.message();
    return call.results();
  };
  const tessera::mask_hooks<tessera::prim::no_mask_functor> none;
  EXPECT_EQ(run({}, tessera::with_mask(band{.behind = 1 << 20, .ahead = 0})),
            run({.causal = true}, none));
  EXPECT_EQ(run({}, tessera::with_mask(band{.behind = 17, .ahead = 5})),
            run({.window_left = 17, .window_right = 5}, none));
  EXPECT_EQ(run({.causal = true}, tessera::with_mask(band{.behind = 70, .ahead = 3})),
            run({.causal = true, .window_left = 70}, none));
  EXPECT_EQ(run({}, tessera::with_mask(tessera::support::chunks{.size = 48})),
            run({.chunk_size = 48}, none));

  const std::vector<std::int32_t> documents = documents_of(190);
  auto with_segments = [&] {
    call.clear();
    auto args = call.args();
    args.q_segment_ids = tessera::view(documents.data(), {1, call.q_len});
    args.kv_segment_ids = tessera::view(documents.data(), {1, call.kv_len});
    EXPECT_TRUE((tessera::launch<row<sparse_pass::forward>>(args, {}, tessera::cpu{})));
    auto backward = call.backward_args();
    backward.q_segment_ids = args.q_segment_ids;
    backward.kv_segment_ids = args.kv_segment_ids;
    EXPECT_TRUE((tessera::launch<row<sparse_pass::backward>>(backward, {}, tessera::cpu{})));
    return call.results();
  }();
  EXPECT_EQ(run({}, tessera::with_mask(same_document{documents.data()})), with_segments);
}

/// A mask of blocks, its functor inside of those of which part is shown: nothing changes.
TEST(blocksparse_header_path, blocks_made_of_a_functor_change_no_bit) {
  // Heads of a group with blocks of their own would have launches of their own, other sums of d_k.
  sparse_call<> call(150, 190, 24, 16, sparse_call<>::q_heads);
  const std::vector<std::int32_t> documents = documents_of(190);
  const auto expect_same = [&](const auto& functor) {
    const auto run = [&](const tessera::block_mask* blocks, bool with_functor) {
      call.clear();
      auto args = call.args();
      auto backward = call.backward_args();
      tessera::blocksparse_attention_options options;
      if (blocks != nullptr) {
        EXPECT_TRUE(blocks->apply_to(args, options));
        EXPECT_TRUE(blocks->apply_to(backward, options));
      }
      using forward_row = row<sparse_pass::forward>;
      using backward_row = row<sparse_pass::backward>;
      if (with_functor) {
        const auto hooks = tessera::with_mask(functor);
        EXPECT_TRUE(tessera::launch<forward_row>(args, options, tessera::cpu{}, hooks));
        EXPECT_TRUE(tessera::launch<backward_row>(backward, options, tessera::cpu{}, hooks));
      } else {
        EXPECT_TRUE(tessera::launch<forward_row>(args, options, tessera::cpu{}));
        EXPECT_TRUE(tessera::launch<backward_row>(backward, options, tessera::cpu{}));
      }
      return call.results();
    };
    const auto wanted = run(nullptr, true);
    for (const std::int64_t block_k : {16, 64, 100}) {
      const tessera::block_grid grid = call.grid(32, block_k);
      const auto left_out =
          tessera::block_mask::from_function(grid, functor, tessera::block_pairs::left_out);
      ASSERT_TRUE(left_out) << left_out.message();
      EXPECT_FALSE(left_out->pairs().present());
      EXPECT_EQ(run(&*left_out, true), wanted);
      const auto kept = tessera::block_mask::from_function(grid, functor);
      ASSERT_TRUE(kept) << kept.message();
      EXPECT_EQ(run(&*kept, false), wanted);
    }
  };
  expect_same(same_document{documents.data()});
  expect_same(band{.behind = 40, .ahead = 9});
  expect_same(heads_of_blocks{});
}

}  // namespace
