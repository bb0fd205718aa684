// What a row compiled here takes and refuses.
#include "tests/op/attention/header_path.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/random.hpp"

namespace {

using namespace tessera::support;

struct causal_d64_row {
  static constexpr tessera::attention_config config{
      .target = tessera::native_cpu_backend, .head_dim = 64, .mask = tessera::mask_mode::causal};
};

TEST(header_path_row, runs_what_its_config_says_and_refuses_the_rest) {
  flash_case narrow_call;
  narrow_call.head_dim = narrow_call.v_head_dim = 64;
  narrow_call.q_len = narrow_call.kv_len = 70;
  narrow_call.options.causal = true;
  expect_right<causal_d64_row>(narrow_call, keeps_logits{}, keeps_all{});

  const auto refusal = [](const flash_case& wrong) {
    flash_data data(wrong);
    const auto done = tessera::launch<causal_d64_row>(data.args(), data.options());
    EXPECT_EQ(done.code(), tessera::status_code::ineligible_row) << done.message();
    EXPECT_TRUE(data.outputs_untouched());
    return done.message();
  };
  flash_case dim = narrow_call;
  dim.head_dim = dim.v_head_dim = 32;
  EXPECT_NE(refusal(dim).find("32"), std::string::npos);
  flash_case window = narrow_call;
  window.options.window_left = 3;
  EXPECT_NE(refusal(window).find("window"), std::string::npos);
  flash_case cap = narrow_call;
  cap.options.logits_soft_cap = 3.0;
  EXPECT_NE(refusal(cap).find("soft_cap"), std::string::npos);
}

TEST(header_path_row, checks_arguments_like_the_library) {
  flash_case example;
  example.head_dim = example.v_head_dim = 64;
  flash_data data(example);
  tessera::flash_attention_args args = data.args();
  args.k.extent[3] = 63;
  const auto done = tessera::launch<causal_d64_row>(args);
  EXPECT_EQ(done.code(), tessera::status_code::invalid_argument);
  EXPECT_NE(done.message().find("k: head_dim is 63"), std::string::npos) << done.message();
  EXPECT_TRUE(data.outputs_untouched());
}

TEST(header_path_row, a_workspace_too_small_is_refused_before_anything_is_written) {
  flash_case example;
  example.head_dim = example.v_head_dim = 64;
  flash_data data(example);
  alignas(64) std::array<std::byte, 64> small{};
  const auto done = tessera::launch<causal_d64_row>(data.args(), tessera::flash_attention_options{},
                                                    tessera::cpu{.threads = 1, .workspace = small});
  EXPECT_EQ(done.code(), tessera::status_code::workspace);
  EXPECT_NE(done.message().find("64"), std::string::npos) << done.message();
  EXPECT_TRUE(data.outputs_untouched());
}

struct paged_row {
  static constexpr tessera::attention_config config{.target = tessera::native_cpu_backend,
                                                    .head_dim = 16,
                                                    .phase = tessera::attention_phase::decode,
                                                    .keys = tessera::key_storage::paged};
};
struct contiguous_row {
  static constexpr tessera::attention_config config{.target = tessera::native_cpu_backend,
                                                    .head_dim = 16,
                                                    .phase = tessera::attention_phase::decode};
};

TEST(header_path_row, of_pages_gives_the_bits_of_contiguous_keys) {
  constexpr std::int64_t keys = 50, dim = 16, page_size = 8;
  std::vector<float> q(dim), k(7 * page_size * dim), v(k.size()), out(dim), expected(dim);
  random_source random(1);
  for (std::vector<float>* values : {&q, &k, &v}) {
    for (float& value : *values) value = random.bell();
  }
  const std::vector<std::int32_t> table{0, 1, 2, 3, 4, 5, 6}, length{keys};
  tessera::page_attention_args args{.q = tessera::view(q.data(), {1, 1, dim}),
                                    .k_pages = tessera::view(k.data(), {7, 1, page_size, dim}),
                                    .v_pages = tessera::view(v.data(), {7, 1, page_size, dim}),
                                    .block_table = tessera::view(table.data(), {1, 7}),
                                    .seqlens_k = tessera::view(length.data(), {1}),
                                    .out = tessera::view(out.data(), {1, 1, dim})};
  const auto done = tessera::launch<paged_row>(tessera::page_op::page_attention, args, {});
  ASSERT_TRUE(done) << done.message();
  const tessera::flash_attention_args dense{.q = tessera::view(q.data(), {1, 1, 1, dim}),
                                            .k = tessera::view(k.data(), {1, keys, 1, dim}),
                                            .v = tessera::view(v.data(), {1, keys, 1, dim}),
                                            .out = tessera::view(expected.data(), {1, 1, 1, dim})};
  ASSERT_TRUE(tessera::launch<contiguous_row>(dense, tessera::flash_attention_options{}));
  EXPECT_EQ(out, expected);
  EXPECT_EQ(tessera::launch<paged_row>(dense, tessera::flash_attention_options{}).message(),
            "key storage is contiguous, the row has paged");
  EXPECT_EQ(tessera::launch<contiguous_row>(tessera::page_op::page_attention, args, {}).message(),
            "key storage is paged, the row has contiguous");
  args.block_table.extent[1] = 6;
  EXPECT_EQ(tessera::launch<paged_row>(tessera::page_op::page_attention, args, {}).message(),
            "seqlens_k: entry 0 is 50, must be 0 to 48: block_table has 6 pages of 8 tokens");
}

TEST(header_path_row, of_pages_reads_shared_ones_for_each_sequence_where_bits_are_its_own) {
  constexpr std::int64_t sequences = 3, pages = 9, dim = 16, page_size = 8;
  std::vector<float> q(sequences * dim), k(pages * page_size * dim), v(k.size()), out(q.size());
  random_source random(2);
  for (std::vector<float>* values : {&q, &k, &v}) {
    for (float& value : *values) value = random.bell();
  }
  const std::vector<std::int32_t> table{4, 1, 7, 4, 1, 3, 4, 1, 0}, lengths{24, 20, 17};
  const std::vector<std::int32_t> groups{0, 3}, shared{2};
  tessera::page_attention_args args{.q = tessera::view(q.data(), {sequences, 1, dim}),
                                    .k_pages = tessera::view(k.data(), {pages, 1, page_size, dim}),
                                    .v_pages = tessera::view(v.data(), {pages, 1, page_size, dim}),
                                    .block_table = tessera::view(table.data(), {sequences, 3}),
                                    .seqlens_k = tessera::view(lengths.data(), {sequences}),
                                    .out = tessera::view(out.data(), {sequences, 1, dim})};
  constexpr auto op = tessera::page_op::page_attention;
  const tessera::cpu alone{.batch_invariant = true};
  ASSERT_TRUE(tessera::launch<paged_row>(op, args, {}, alone));
  const std::vector<float> expected = out;
  args.cu_prefix_seqs = tessera::view(groups.data(), {2});
  args.prefix_pages = tessera::view(shared.data(), {1});
  out.assign(out.size(), -1.0f);
  ASSERT_TRUE(tessera::launch<paged_row>(op, args, {}, alone));
  EXPECT_EQ(out, expected);
  ASSERT_TRUE(tessera::launch<paged_row>(op, args, {}));
  for (std::size_t at = 0; at < out.size(); ++at) EXPECT_NEAR(out[at], expected[at], 1e-5);
}

}  // namespace
