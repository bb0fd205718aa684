// Keys that lie in pages of any size: both loops give the bits that they give for the same keys in
// one piece. What a paged source needs is here in its simplest form.
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

/// Page p of a sequence is number table[p] in memory.
struct page_table {
  std::int64_t page_size = 0;
  std::vector<std::int32_t> pages;
};
const page_table* current = nullptr;  // of the launch under way

template <class Element>
class paged_tokens {
 public:
  using element = Element;

  paged_tokens(const void* data, const row_strides& strides, std::int64_t count)
      : data_(static_cast<const Element*>(data)),
        strides_(strides),
        count_(count),
        table_(*current) {}

  const Element* row(std::int64_t j, int head) const {
    const std::int64_t page = table_.pages[static_cast<std::size_t>(j / table_.page_size)];
    return data_ + (page * table_.page_size + j % table_.page_size) * strides_.row +
           head * strides_.head;
  }
  std::int64_t contiguous_run(std::int64_t j) const {
    const std::int64_t left = table_.page_size - j % table_.page_size;
    return left < count_ - j ? left : count_ - j;
  }
  struct all_rows {
    using element = Element;
    const paged_tokens& tokens;
    std::int64_t first;
    int head;
    const Element* row(std::int64_t i) const { return tokens.row(first + i, head); }
  };
  all_rows rows(std::int64_t j, int head) const { return {*this, j, head}; }
  prim::strided_rows<Element> run_rows(std::int64_t j, int head, std::int64_t distance) const {
    return {row(j, head), strides_.row * distance};
  }
  std::int64_t stride() const { return strides_.row; }
  std::int64_t head_stride() const { return strides_.head; }

 private:
  const Element* data_;
  row_strides strides_;
  std::int64_t count_;
  const page_table& table_;
};

template <class Element>
struct paged_source {
  paged_tokens<Element> k;
  paged_tokens<Element> v;
  static paged_source of(const attention_kernel_args& args, const prim::sequence& seq) {
    return {{args.k, args.k_strides, seq.k_len}, {args.v, args.v_strides, seq.k_len}};
  }
};

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
    page_table table{page_size, {}};
    const std::int64_t pages = (kv_len + page_size - 1) / page_size;
    table.pages.resize(static_cast<std::size_t>(pages));
    // Every page somewhere else.
    for (std::int64_t p = 0; p < pages; ++p) {
      table.pages[static_cast<std::size_t>(p)] = static_cast<std::int32_t>(pages - 1 - p);
    }
    const auto token = static_cast<std::size_t>(kv_heads * head_dim);
    const auto in_pages = [&](const std::vector<element>& tokens) {
      std::vector<element> paged(static_cast<std::size_t>(pages * page_size) * token);
      for (std::int64_t j = 0; j < kv_len; ++j) {
        const std::int64_t page = table.pages[static_cast<std::size_t>(j / page_size)];
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
    current = &table;
    const auto out = output_of<Kernel, paged_source<element>, element>(paged);
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

}  // namespace
