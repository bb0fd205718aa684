// The header path with rows over keys in pages: rows of wgmma compute what those of mma.sync do,
// and bits do not depend on the batch where that is asked for.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <tessera/launch_cuda.hpp>
#include <tessera/prim/cuda/launch.hpp>

#include "tests/cuda/decode_pages.hpp"
#include "tests/cuda/device_values.hpp"

namespace tessera::device_test {
namespace {

struct hopper_row {
  static constexpr attention_config config{.target = backend::cuda_sm90,
                                           .type = dtype::bf16,
                                           .head_dim = 64,
                                           .keys = key_storage::paged};
};
struct contiguous_row {
  static constexpr attention_config config{.target = backend::cuda_sm80,
                                           .type = dtype::bf16,
                                           .head_dim = 64,
                                           .phase = attention_phase::decode,
                                           .features = base_features,
                                           .block_q = 16,
                                           .block_kv = 64,
                                           .tiling = {.warps = 1, .blocks_per_sm = 6}};
};

constexpr std::int64_t sequences = 5, q_heads = 8, kv_heads = 2, dim = 64, slots = 40;
constexpr device_id here{device_kind::cuda, 0};

/// A batch over pages in reverse order, what no key lies in is not a number.
class paged_batch {
 public:
  explicit paged_batch(std::int64_t page_size)
      : page_size_(page_size),
        q_(bells(offsets().back() * q_heads * dim, 1)),
        k_(pool(2)),
        v_(pool(3)),
        out_(
            std::vector<std::uint16_t>(static_cast<std::size_t>(offsets().back() * q_heads * dim))),
        table_(numbers()),
        lengths_(lengths()),
        offsets_(offsets()) {}

  static std::vector<std::int32_t> offsets() { return {0, 1, 70, 70, 71, 75}; }
  static std::vector<std::int32_t> lengths() { return {611, 333, 0, 1, 129}; }
  static std::vector<std::int32_t> numbers() {
    std::vector<std::int32_t> table(sequences * slots);
    for (std::size_t at = 0; at < table.size(); ++at) {
      table[at] = static_cast<std::int32_t>(table.size() - 1 - at);
    }
    return table;
  }
  /// Sequences [first, first + count), one row each: the first of their rows.
  page_attention_args single_rows(std::int64_t first, std::int64_t count) {
    page_attention_args args{
        .q = on_device(q_.data() + first * q_heads * dim, {count, q_heads, dim}),
        .k_pages = pool_view(k_),
        .v_pages = pool_view(v_),
        .block_table = view(table_.data() + first * slots, {count, slots}, {}, here),
        .seqlens_k = view(lengths_.data() + first, {count}, {}, here),
        .out = on_device(out_.data() + first * q_heads * dim, {count, q_heads, dim})};
    return args;
  }
  unified_attention_args batch() {
    return {.q = on_device(q_.data(), {offsets().back(), q_heads, dim}),
            .k_pages = pool_view(k_),
            .v_pages = pool_view(v_),
            .block_table = view(table_.data(), {sequences, slots}, {}, here),
            .seqlens_k = view(lengths_.data(), {sequences}, {}, here),
            .cu_seqlens_q = view(offsets_.data(), {sequences + 1}, {}, here),
            .out = on_device(out_.data(), {offsets().back(), q_heads, dim})};
  }
  /// The rows bring keys and values; of those before them the pool has the last `window` alone.
  ragged_page_args windowed_batch(device_values<std::uint16_t>& pool,
                                  device_values<std::uint16_t>& fresh) {
    const std::int64_t rows = offsets().back();
    const auto new_tokens = [&] { return on_device(fresh.data(), {rows, kv_heads, dim}); };
    return {.q = on_device(q_.data(), {rows, q_heads, dim}),
            .kv_pages = on_device(pool.data(), {sequences * slots, page_size_, 2 * kv_heads, dim}),
            .block_table = view(table_.data(), {sequences, slots}, {}, here),
            .seqlens_k = view(lengths_.data(), {sequences}, {}, here),
            .cu_seqlens_q = view(offsets_.data(), {sequences + 1}, {}, here),
            .k_new = new_tokens(),
            .v_new = new_tokens(),
            .out = on_device(out_.data(), {rows, q_heads, dim})};
  }
  /// Channels of keys and values, not a number where no window of `left` keys before its row is.
  std::vector<std::uint16_t> windowed_pool(std::int64_t left) const {
    return pool(4, 2 * kv_heads, [left](std::int64_t n, std::int64_t j) {
      const auto at = static_cast<std::size_t>(n);
      const std::int64_t context = lengths()[at] - (offsets()[at + 1] - offsets()[at]);
      return j >= context - left && j < context;
    });
  }
  std::vector<std::uint16_t> out() { return out_.fetch(); }

 private:
  static tensor_view on_device(std::uint16_t* data, std::initializer_list<std::int64_t> extent) {
    return view(reinterpret_cast<bf16*>(data), extent, {}, here);
  }
  tensor_view pool_view(device_values<std::uint16_t>& pool) const {
    return on_device(pool.data(), {sequences * slots, page_size_, kv_heads, dim});
  }
  std::vector<std::uint16_t> pool(unsigned seed) const {
    return pool(seed, kv_heads, [](std::int64_t, std::int64_t) { return true; });
  }
  template <class Holds>
  std::vector<std::uint16_t> pool(unsigned seed, std::int64_t heads, const Holds& holds) const {
    const std::int64_t token = heads * dim;
    std::vector<std::uint16_t> all(static_cast<std::size_t>(sequences * slots * page_size_ * token),
                                   0x7fc0);
    const std::vector<std::uint16_t> values = bells(static_cast<std::int64_t>(all.size()), seed);
    const std::vector<std::int32_t> table = numbers();
    for (std::int64_t n = 0; n < sequences; ++n) {
      for (std::int64_t j = 0; j < lengths()[static_cast<std::size_t>(n)]; ++j) {
        if (!holds(n, j)) continue;
        const std::int64_t page = table[static_cast<std::size_t>(n * slots + j / page_size_)];
        const auto first = static_cast<std::size_t>((page * page_size_ + j % page_size_) * token);
        for (std::size_t d = first; d < first + static_cast<std::size_t>(token); ++d) {
          all[d] = values[d];
        }
      }
    }
    return all;
  }

  std::int64_t page_size_;
  device_values<std::uint16_t> q_, k_, v_, out_;
  device_values<std::int32_t> table_, lengths_, offsets_;
};

class header_pages : public testing::Test {
 protected:
  void SetUp() override {
    if (const int capability = prim::cuda::capability_of(0); capability != 90) {
      GTEST_SKIP() << "compute capability is " << capability << ", the rows need 90";
    }
  }
};

constexpr unified_attention_options tokens_first{.pool_layout = page_layout::PTHD};

TEST_F(header_pages, of_any_size_are_the_same_to_rows_of_wgmma) {
  // Boxes of whole pages, of parts of a page, and tokens one after the other.
  for (const std::int64_t page_size : {16, 48, 17}) {
    paged_batch batch(page_size);
    const unified_attention_args args = batch.batch();
    constexpr auto op = unified_op::unified_attention;
    ASSERT_TRUE(launch<decode_row>(op, args, tokens_first, cuda{}));
    const std::vector<std::uint16_t> expected = batch.out();
    attention_kernel_args lowered;
    device_id device;
    ASSERT_TRUE(lower(op, args, tokens_first, lowered, &device));
    namespace target = kernels::attention::sm90;
    device_values<std::byte> workspace(
        std::vector<std::byte>(target::workspace_bytes<hopper_row>(lowered, 0)));
    const status done = target::launch<hopper_row>(
        lowered,
        {.threads = 8, .workspace = workspace.data(), .workspace_bytes = workspace.fetch().size()});
    ASSERT_TRUE(done) << done.message();
    const std::vector<std::uint16_t> out = batch.out();
    for (std::size_t at = 0; at < out.size(); ++at) {
      ASSERT_NEAR(float_of(out[at]), float_of(expected[at]), 0.02f) << page_size << ": " << at;
    }
  }
}

TEST_F(header_pages, before_windows_hold_anything_whatever_queries_are_divided_by) {
  // Rows whose sums something that they do not see has reached are done again.
  constexpr auto op = ragged_page_op::ragged_page_attention_v3;
  constexpr std::int64_t left = 1;
  for (const double q_scale : {1.0, 40.0}) {
    paged_batch batch(16);
    const std::vector<std::uint16_t> held = batch.windowed_pool(left);
    device_values<std::uint16_t> pool(held),
        fresh(bells(paged_batch::offsets().back() * kv_heads * dim, 5));
    const ragged_page_args args = batch.windowed_batch(pool, fresh);
    const ragged_page_options options{.window_left = left, .q_scale = q_scale};
    ASSERT_TRUE(launch<decode_row>(op, args, options, cuda{}));
    const std::vector<std::uint16_t> expected = batch.out();
    const status done = launch<hopper_row>(op, args, options, cuda{});
    ASSERT_TRUE(done) << done.message();
    const std::vector<std::uint16_t> out = batch.out();
    for (std::size_t at = 0; at < out.size(); ++at) {
      ASSERT_NEAR(float_of(out[at]), float_of(expected[at]), 0.02f) << q_scale << ": " << at;
    }
  }
}

TEST_F(header_pages, keep_the_bits_of_each_sequence_where_that_is_asked_for) {
  paged_batch batch(16);
  constexpr page_attention_options options{.pool_layout = page_layout::PTHD};
  constexpr auto op = page_op::page_attention;
  const cuda alone{.batch_invariant = true};
  ASSERT_TRUE(launch<decode_row>(op, batch.single_rows(0, sequences), options, alone));
  const std::vector<std::uint16_t> expected = batch.out();
  for (std::int64_t n = 0; n < sequences; ++n) {
    ASSERT_TRUE(launch<decode_row>(op, batch.single_rows(n, 1), options, alone));
  }
  EXPECT_EQ(batch.out(), expected);
}

TEST_F(header_pages, that_no_row_promises_bits_for_are_refused) {
  device_values<std::uint16_t> values(bells(64 * 8, 4)), out(bells(64 * 8, 5));
  const auto tokens = [&] {
    return view(reinterpret_cast<bf16*>(values.data()), {1, 1, 8, dim}, {}, here);
  };
  const tensor_view other = view(reinterpret_cast<bf16*>(out.data()), {1, 1, 8, dim}, {}, here);
  const status done = launch<contiguous_row>(
      flash_attention_args{.q = tokens(), .k = tokens(), .v = tokens(), .out = other},
      flash_attention_options{}, cuda{.batch_invariant = true});
  EXPECT_EQ(done.code(), status_code::ineligible_row);
  EXPECT_EQ(done.message(),
            "batch_invariant is true, how the row cuts its work depends on the whole batch");
}

}  // namespace
}  // namespace tessera::device_test
