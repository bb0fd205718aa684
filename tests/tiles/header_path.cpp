// The header path on a row of AMX: user functors against the oracle.
#include "tests/op/attention/header_path.hpp"

#include <cmath>
#include <cstdint>

namespace {

using namespace tessera;
using namespace tessera::support;
static_assert(header_path_target == backend::cpu_amx_bf16);

TEST(header_path, plain_calls_are_right_on_tiles) {
  calls_of<prefill_row>().plain(right_on<prefill_row>);
}

TEST(header_path, alibi_is_right_on_tiles) {
  calls_of<prefill_row>().with_alibi(right_on<prefill_row>);
}

// Rows are on their way through two tiles of keys at a time: as many as one to four tiles of rows,
// with values that are not finite in every tile of keys.
TEST(header_path, few_rows_of_many_tiles_of_keys_are_right) {
  for (const std::int64_t rows : {9, 32, 40, 100}) {
    for (const bool causal : {false, true}) {
      flash_case call;
      call.type = dtype::bf16;
      call.q_len = rows;
      call.kv_len = 1800;
      call.head_dim = call.v_head_dim = 64;
      call.options.causal = causal;
      flash_data data(call);
      const tensor_view& v = data.args().v;
      for (const std::int64_t key : {3, 600, 1030, 1500, 1760}) {
        store(v, key * v.stride[1] + key % 60 * v.stride[3], key % 2 == 0 ? HUGE_VAL : NAN);
      }
      const flash_expectation expectation(data.args(), data.options());
      for (const int threads : {1, 3}) {
        data.reset_outputs();
        const auto done = launch<prefill_row>(data.args(), data.options(), cpu{.threads = threads});
        ASSERT_TRUE(done) << done.message();
        EXPECT_EQ(expectation.complaints(), "") << rows << " rows, " << threads << " threads";
      }
    }
  }
}

}  // namespace
