// Decode on tiles: rows of queries and keys that fill no tile, keys that lie anywhere.
#include <cstdint>
#include <string>

#include "tests/op/attention/header_path.hpp"

namespace {

using namespace tessera;
using namespace tessera::support;

template <int HeadDim, int VHeadDim, int BlockQ, int BlockKv>
struct decode_row {
  static constexpr attention_config config{
      .target = backend::cpu_amx_bf16,
      .type = dtype::bf16,
      .head_dim = HeadDim,
      .v_head_dim = VHeadDim,
      .phase = attention_phase::decode,
      .features = every_feature.without(attention_features{} | attention_feature::weights),
      .block_q = BlockQ,
      .block_kv = BlockKv};
};

template <class Row>
void expect_right_calls() {
  calls_of<Row>().plain(right_on<Row>);
}

TEST(header_path, decode_is_right_on_tiles) {
  expect_right_calls<decode_row<64, 64, 64, 128>>();
  expect_right_calls<decode_row<128, 128, 64, 64>>();
  expect_right_calls<decode_row<32, 96, 5, 32>>();
}

/// Tiles of each number of rows, the last one with less; keys in parts of tiles.
TEST(header_path, decode_takes_any_number_of_rows_on_tiles) {
  using row = decode_row<64, 32, 64, 96>;
  for (const std::int64_t q_len : {1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 49, 64, 65}) {
    for (const std::int64_t kv_len : {1, 15, 16, 17, 95, 96, 97, 130, 600}) {
      if (kv_len < q_len) continue;
      flash_case call;
      call.type = dtype::bf16;
      call.head_dim = 64;
      call.v_head_dim = 32;
      call.q_len = q_len;
      call.kv_len = kv_len;
      call.options.causal = true;
      SCOPED_TRACE(std::to_string(q_len) + " rows, " + std::to_string(kv_len) + " keys");
      expect_right<row>(call, keeps_logits{}, keeps_all{});
    }
  }
}

}  // namespace
