// Keys that lie in pages of any size: both loops give the bits that they give for the same keys in
// one piece.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/kernels/attention/cpu/launch.hpp>

#include "../../../support/random.hpp"
#include "../../prim/native.hpp"

namespace {

using namespace tessera;
namespace attention = kernels::attention;

struct prefill_f32 {
  static constexpr attention_config config{.target = native_cpu_backend, .head_dim = 64};
};
struct prefill_bf16 {
  static constexpr attention_config config{
      .target = native_cpu_bf16_backend, .type = dtype::bf16, .head_dim = 64};
};
struct decode_f32 {
  static constexpr attention_config config{
      .target = native_cpu_backend, .head_dim = 64, .phase = attention_phase::decode};
};
struct decode_bf16 {
  static constexpr attention_config config{.target = native_cpu_bf16_backend,
                                           .type = dtype::bf16,
                                           .head_dim = 64,
                                           .phase = attention_phase::decode};
};

constexpr int kv_heads = 2, head_dim = 64;
constexpr std::int64_t kv_len = 700;

template <class Element>
std::vector<Element> random_tokens(std::int64_t tokens, int heads, std::uint64_t seed) {
  support::random_source random(seed);
  std::vector<Element> values(static_cast<std::size_t>(tokens * heads * head_dim));
  for (Element& value : values) value = Element(random.bell());
  return values;
}

template <class Kernel, class Source, class Element>
std::vector<Element> output_of(attention_kernel_args args) {
  std::vector<Element> out(static_cast<std::size_t>(args.q_len * args.q_heads * head_dim));
  args.out = out.data();
  const std::size_t bytes = attention::cpu::workspace_bytes<Kernel>(args, 1);
  prim::scratch_memory memory;
  std::span<std::byte> workspace;
  EXPECT_TRUE(memory.reserve(bytes, workspace));
  const launch_context context{1, workspace.data(), workspace.size()};
  EXPECT_TRUE((attention::cpu::launch_on<Kernel, Source>(args, flash_hooks<>{}, context)));
  return out;
}

template <class Kernel>
void expect_pages_change_no_bit(std::int64_t q_len, int group) {
  using element = element_t<Kernel::config.type>;
  const auto q = random_tokens<element>(q_len, kv_heads * group, 1);
  const auto k = random_tokens<element>(kv_len, kv_heads, 2);
  const auto v = random_tokens<element>(kv_len, kv_heads, 3);
  const auto strides = [](int heads) { return row_strides{0, heads * head_dim, head_dim}; };
  attention_kernel_args args{.q = q.data(), .k = k.data(), .v = v.data()};
  args.q_strides = args.out_strides = strides(kv_heads * group);
  args.k_strides = args.v_strides = strides(kv_heads);
  args.batch = 1;
  args.q_len = q_len;
  args.kv_len = kv_len;
  args.q_heads = kv_heads * group;
  args.kv_heads = kv_heads;
  args.head_dim = args.v_head_dim = head_dim;
  args.softmax_scale = 0.125f;
  args.causal = true;
  const auto whole = output_of<Kernel, attention::strided_source<element>, element>(args);
  for (const std::int64_t page_size : {1, 3, 16, 100, 1000}) {
    const std::int64_t pages = (kv_len + page_size - 1) / page_size;
    // Every page somewhere else.
    std::vector<std::int32_t> table(static_cast<std::size_t>(pages));
    std::iota(table.rbegin(), table.rend(), 0);
    const auto token = static_cast<std::size_t>(kv_heads * head_dim);
    const auto in_pages = [&](const std::vector<element>& tokens) {
      std::vector<element> paged(static_cast<std::size_t>(pages * page_size) * token);
      for (std::int64_t j = 0; j < kv_len; ++j) {
        const std::int64_t page = table[static_cast<std::size_t>(j / page_size)];
        const auto to = static_cast<std::size_t>(page * page_size + j % page_size);
        std::copy_n(tokens.data() + static_cast<std::size_t>(j) * token, token,
                    paged.data() + to * token);
      }
      return paged;
    };
    const auto paged_k = in_pages(k), paged_v = in_pages(v);
    attention_kernel_args paged = args;
    paged.k = paged_k.data();
    paged.v = paged_v.data();
    paged.k_strides.batch = paged.v_strides.batch = page_size * kv_heads * head_dim;
    paged.pages = {table.data(), pages, page_size, pages};
    const auto out = output_of<Kernel, attention::paged_source<element>, element>(paged);
    EXPECT_EQ(std::memcmp(out.data(), whole.data(), out.size() * sizeof(element)), 0)
        << "pages of " << page_size << " keys";
  }
}

TEST(key_source, prefill_reads_pages_of_any_size) {
  expect_pages_change_no_bit<prefill_f32>(65, 2);
  expect_pages_change_no_bit<prefill_bf16>(65, 2);
}

// Three rows a key: one or two are read in another order where keys lie in one piece.
TEST(key_source, decode_reads_pages_of_any_size) {
  expect_pages_change_no_bit<decode_f32>(1, 3);
  expect_pages_change_no_bit<decode_bf16>(2, 4);
}

TEST(key_source, tensors_are_one_run) {
  const auto k = random_tokens<float>(kv_len, kv_heads, 2);
  attention_kernel_args args{.k = k.data(), .v = k.data()};
  args.k_strides = args.v_strides = {0, kv_heads * head_dim, head_dim};
  const prim::sequence seq{.k_begin = 10, .q_len = 1, .k_len = 50};
  const auto source = attention::strided_source<float>::of(args, seq);
  EXPECT_EQ(source.k.contiguous_run(0), 50);
  EXPECT_EQ(source.k.contiguous_run(49), 1);
  EXPECT_EQ(source.k.row(7, 1), k.data() + (17 * kv_heads + 1) * head_dim);
  EXPECT_EQ(source.v.rows(7, 1).row(3), source.v.row(10, 1));
  EXPECT_EQ(source.v.run_rows(7, 0, 4).row(2), source.v.row(15, 0));
}

TEST(key_source, pages_are_runs) {
  const auto k = random_tokens<float>(24, kv_heads, 2);
  const std::vector<std::int32_t> table{9, 9, 2, 0, 1};
  const std::int64_t token = kv_heads * head_dim;
  attention_kernel_args args{.k = k.data(), .v = k.data()};
  args.k_strides = args.v_strides = {8 * token, token, head_dim};
  args.pages = {table.data(), 2, 8, 3};
  const prim::sequence seq{.index = 1, .q_len = 1, .k_len = 11};
  const auto source = attention::paged_source<float>::of(args, seq);
  EXPECT_EQ(source.k.contiguous_run(0), 8);
  EXPECT_EQ(source.k.contiguous_run(7), 1);
  EXPECT_EQ(source.k.contiguous_run(8), 3) << "the sequence ends in its second page";
  EXPECT_EQ(source.k.row(7, 1), k.data() + (16 + 7) * token + head_dim);
  EXPECT_EQ(source.v.row(9, 0), k.data() + token);
  EXPECT_EQ(source.v.rows(7, 1).row(2), source.v.row(9, 1));
  EXPECT_EQ(source.v.run_rows(1, 0, 4).row(1), source.v.row(5, 0));
}

}  // namespace
