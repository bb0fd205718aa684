// Which rows problems get on processors that are not there: caches and rates that differ.
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <tessera/families/mean_pooling/declaration.hpp>
#include <tessera/families/mean_pooling/registry.hpp>
#include <tessera/spec/problem_text.hpp>

#include "default_table.hpp"
#include "pretended.hpp"

namespace tessera::testing {
namespace {

device_facts server(int threads, std::int64_t l3_mebibytes, int l3_threads) {
  device_facts device = device_with(backend::cpu_avx512_bf16, threads);
  device.l3_bytes = l3_mebibytes << 20;
  device.l3_threads = l3_threads;
  return device;
}

/// The row for a gradient of so many MiB.
std::string gradient_row(const device_facts& device, int mebibytes, std::string_view type = "f32") {
  const std::int64_t columns = type == "f32" ? 1024 : 2048;
  const std::string text = "mean_pooling_backward x=[8," + std::to_string(32 * mebibytes) + "," +
                           std::to_string(columns) + "]" + std::string(type);
  const mean_pooling_problem problem = *parse_problem<mean_pooling_problem>(text);
  const problem_view view = view_of(problem);
  const inquiry asked{.kind = mean_pooling_record,
                      .problem = view,
                      .demand = demand_for(mean_pooling_record, view, {}),
                      .instances = mean_pooling_registry(),
                      .device = device,
                      .threads = device.available_threads};
  return std::string(select(asked)->row());
}

::testing::AssertionResult is(const std::string& row, std::string_view stores) {
  if (row.ends_with(stores)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << row << " has not " << stores << " stores";
}

TEST(Processors, GradientsThatFitTheCacheAreNotStreamed) {
  for (const char* type : {"f32", "f16", "bf16"}) {
    const device_facts device = server(2, 32, 2);
    for (const int size : {1, 8, 16, 24, 31}) {
      EXPECT_TRUE(is(gradient_row(device, size, type), "cached")) << size << " MiB " << type;
    }
    for (const int size : {33, 48, 64, 512}) {
      EXPECT_TRUE(is(gradient_row(device, size, type), "streaming")) << size << " MiB " << type;
    }
  }
  EXPECT_TRUE(is(gradient_row(server(4, 8, 4), 7), "cached"));
  EXPECT_TRUE(is(gradient_row(server(4, 8, 4), 9), "streaming"));
}

TEST(Processors, CachesOfEveryClusterThatThreadsFillCount) {
  EXPECT_TRUE(is(gradient_row(server(64, 32, 16), 120), "cached")) << "four clusters of 16 threads";
  EXPECT_TRUE(is(gradient_row(server(64, 32, 16), 136), "streaming"));
  EXPECT_TRUE(is(gradient_row(server(64, 32, 0), 120), "streaming")) << "may be one cluster";
  device_facts none = server(4, 0, 0);
  none.l2_bytes = 2 << 20;
  EXPECT_TRUE(is(gradient_row(none, 7), "cached")) << "second-level caches of four cores";
  EXPECT_TRUE(is(gradient_row(none, 9), "streaming"));
}

std::string attention_row(std::string_view text, int bf16_dot_percent, int threads = 16,
                          backend highest = backend::cpu_avx512_bf16) {
  question question(text, highest, threads);
  question.device.bf16_dot_percent = bf16_dot_percent;
  auto asked = question.asked();
  asked.instances = default_table();
  return std::string(select(asked)->row());
}

TEST(Processors, PromptsAvoidBf16ProductsOfHalfRate) {
  for (const char* head_dim : {"64", "96", "128", "256"}) {
    const std::string shape = std::string("[1,2048,16,") + head_dim + "]bf16";
    const std::string text = "flash_attention q=" + shape + " k=" + shape + " causal=true";
    const std::string full = attention_row(text, 100);
    EXPECT_TRUE(full.starts_with("attention.cpu_avx512_bf16.bf16.")) << full;
    EXPECT_EQ(attention_row(text, 0), full) << "not known: as before";
    const std::string half = attention_row(text, 50);
    EXPECT_TRUE(half.starts_with("attention.cpu_avx512.bf16.")) << half;
  }
}

TEST(Processors, DecodeAvoidsThemWhereProductsHoldItBack) {
  for (const char* text : {"flash_attention q=[8,1,32,128]bf16 k=[8,4096,8,128]",
                           "flash_attention q=[1,1,64,128]bf16 k=[1,1024,8,128] causal=true",
                           "flash_attention q=[1,1,32,64]bf16 k=[1,8192,8,64] causal=true"}) {
    const std::string full = attention_row(text, 100);
    EXPECT_TRUE(full.starts_with("attention.cpu_avx512_bf16.bf16.")) << full;
    EXPECT_EQ(attention_row(text, 0), full) << "not known: as before";
    for (const int threads : {1, 2, 16}) {
      const std::string half = attention_row(text, 50, threads);
      EXPECT_TRUE(half.starts_with("attention.cpu_avx512.bf16.")) << half << " " << threads;
      EXPECT_NE(half.find("decode"), std::string::npos) << half;
    }
  }
  // One or two rows a key: widening costs more than the slower products.
  for (const char* text : {"flash_attention q=[8,1,8,128]bf16 k=[8,4096,8,128]",
                           "flash_attention q=[1,1,16,64]bf16 k=[1,8192,8,64] causal=true"}) {
    const std::string full = attention_row(text, 100);
    EXPECT_TRUE(full.starts_with("attention.cpu_avx512_bf16.bf16.")) << full;
    EXPECT_EQ(attention_row(text, 50), full);
  }
}

/// On a processor with AMX one token goes to tiles where rows share its keys, so that they are read
/// in place, and several tokens do.
TEST(Processors, OneTokenGoesToTilesWhereRowsShareItsKeys) {
  const auto row_of = [](int queries, int q_heads, int keys, int threads) {
    const std::string text = "flash_attention q=[1," + std::to_string(queries) + "," +
                             std::to_string(q_heads) + ",128]bf16 k=[1," + std::to_string(keys) +
                             ",8,128] causal=true";
    return attention_row(text, 50, threads, backend::cpu_amx_bf16);
  };
  constexpr std::string_view tiles = "attention.cpu_amx_bf16.bf16.d128.decode.64x128";
  constexpr std::string_view vectors = "attention.cpu_avx512_bf16.bf16.d128.decode.16x128";
  for (const int threads : {1, 2, 16}) {
    for (const int keys : {2048, 8192, 32768}) {
      EXPECT_EQ(row_of(1, 16, keys, threads), vectors) << keys << " keys, " << threads;
      EXPECT_EQ(row_of(1, 32, keys, threads), tiles) << keys << " keys, " << threads;
      EXPECT_EQ(row_of(1, 64, keys, threads), tiles) << keys << " keys, " << threads;
      EXPECT_EQ(row_of(4, 32, keys, threads), tiles) << keys << " keys, " << threads;
    }
  }
}

TEST(Processors, ManySequencesAreReadInPlaceToo) {
  const auto row_of = [](int entries, int q_heads) {
    const std::string batch = std::to_string(entries);
    return attention_row("flash_attention q=[" + batch + ",1," + std::to_string(q_heads) +
                             ",128]bf16 k=[" + batch + ",8192,8,128] causal=true",
                         50, 16, backend::cpu_amx_bf16);
  };
  for (const int entries : {4, 8, 32}) {
    EXPECT_EQ(row_of(entries, 32), "attention.cpu_amx_bf16.bf16.d128.decode.64x128") << entries;
    EXPECT_EQ(row_of(entries, 64), "attention.cpu_amx_bf16.bf16.d128.decode.64x128") << entries;
  }
}

/// Tiles read sixteen keys of a page in place, not those of several pages.
TEST(Processors, OneTokenOverPagesGoesToTilesWherePagesHoldTheirKeys) {
  for (const int page_size : {8, 16, 24, 64}) {
    const std::string pages = std::to_string(8192 / page_size);
    const auto problem = parse_problem<page_problem>(
        "page_attention q=[1,32,128]bf16 k_pages=[" + pages + "," + std::to_string(page_size) +
        ",8,128] block_table=[1," + pages + "]i32 pool_layout=PTHD");
    ASSERT_TRUE(problem) << problem.message();
    const problem_view view = view_of(*problem);
    question any("flash_attention q=[1,1,32,128]bf16 k=[1,8192,8,128]", backend::cpu_amx_bf16, 16);
    any.device.bf16_dot_percent = 50;
    const inquiry asked{.kind = attention_record,
                        .problem = view,
                        .demand = demand_for(attention_record, view, any.policy),
                        .instances = default_table(),
                        .device = any.device,
                        .threads = any.threads,
                        .policy = any.policy};
    const std::string row(select(asked)->row());
    EXPECT_NE(row.find("decode.paged"), std::string::npos) << row;
    EXPECT_EQ(row.find("cpu_amx_bf16") != std::string::npos, page_size % 16 == 0)
        << row << " for pages of " << page_size;
  }
}

TEST(Processors, FewRowsOfALongCacheAreNotPacked) {
  const auto row_of = [](int rows, std::string_view type) {
    const std::string text = "flash_attention q=[1," + std::to_string(rows) + ",8,128]" +
                             std::string(type) + " k=[1,8192,8,128] causal=true";
    return attention_row(text, 100, 2);
  };
  for (const char* type : {"f32", "bf16"}) {
    for (const int rows : {1, 4, 16, 32}) {
      EXPECT_NE(row_of(rows, type).find("decode"), std::string::npos)
          << rows << " rows of " << type;
    }
    for (const int rows : {64, 128}) {
      EXPECT_EQ(row_of(rows, type).find("decode"), std::string::npos)
          << rows << " rows of " << type;
    }
  }
}

TEST(Processors, TheRateIsNoPartOfTheDeviceClass) {
  device_facts device = server(16, 32, 16);
  const device_class_text before = device_class_of(device);
  EXPECT_EQ(before.view(), "cpu_avx512_bf16.l1d=32K.l2=1M.cores=16");
  device.bf16_dot_percent = 50;
  device.l3_threads = 8;
  EXPECT_EQ(device_class_of(device).view(), before.view());
}

}  // namespace
}  // namespace tessera::testing
