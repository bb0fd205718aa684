// Decode on tiles: rows of queries and keys that fill no tile, keys that lie anywhere.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

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

/// A row whose tiles read four and eight query rows a key in place.
template <int HeadDim, int VHeadDim>
struct in_place_row {
  static constexpr attention_config config{.target = backend::cpu_amx_bf16,
                                           .type = dtype::bf16,
                                           .head_dim = HeadDim,
                                           .v_head_dim = VHeadDim,
                                           .phase = attention_phase::decode,
                                           .features = base_features,
                                           .block_q = 64,
                                           .block_kv = 128};
};

void put(const tensor_view& view, std::int64_t row, std::int64_t head, std::int64_t d,
         double value) {
  store(view, row * view.stride[1] + head * view.stride[2] + d * view.stride[3], value);
}

/// Against the oracle, with the bits of one thread.
template <class Row>
void expect_right_in_place(const flash_case& call, bool finite) {
  SCOPED_TRACE(std::to_string(call.q_len) + " queries, " + std::to_string(call.kv_len) + " keys");
  flash_data data(call);
  const flash_attention_args& args = data.args();
  if (!finite) {
    // Single columns of some steps, one of them hidden from all queries but the last; and a query.
    put(args.v, 0, 1, 5, std::nan(""));
    put(args.v, call.kv_len / 2, 0, 8, HUGE_VAL);
    put(args.v, call.kv_len - 1, 0, 2, -HUGE_VAL);
    put(args.k, call.kv_len / 3, 1, 7, HUGE_VAL);
    put(args.q, 0, 1, 3, std::nan(""));
  }
  const flash_expectation expectation(args, data.options());
  std::vector<std::vector<std::byte>> bits[2];  // with one and two threads
  for (const int threads : {1, 2}) {
    data.reset_outputs();
    const auto done = launch<Row>(args, data.options(), cpu{.threads = threads});
    ASSERT_TRUE(done) << done.message();
    EXPECT_EQ(expectation.complaints(), "") << threads << " threads";
    for (const guarded_tensor* output : data.outputs()) {
      bits[threads - 1].push_back(output->bytes());
    }
  }
  EXPECT_TRUE(bits[0] == bits[1]) << "other bits than with one thread";
}

/// Steps that all rows see are read in place, what is left is not, and rows that meet a number that
/// is not finite are made anew, those alone.
template <class Row>
void expect_right_in_place() {
  for (const bool finite : {true, false}) {
    for (const std::int64_t q_len : {1, 2}) {
      for (const std::int64_t group : {2, 4, 8}) {
        for (const std::int64_t kv_len : {3, 31, 32, 33, 130, 600}) {
          flash_case call;
          call.type = dtype::bf16;
          call.head_dim = Row::config.head_dim;
          call.v_head_dim = Row::config.v_head_dim;
          call.kv_heads = 2;
          call.q_heads = 2 * group;
          call.q_len = q_len;
          call.kv_len = kv_len;
          call.options.causal = true;
          expect_right_in_place<Row>(call, finite);
        }
      }
    }
  }
}

TEST(header_path, decode_reads_keys_and_values_in_place_on_tiles) {
  expect_right_in_place<in_place_row<64, 128>>();
  expect_right_in_place<in_place_row<128, 64>>();
}

}  // namespace
