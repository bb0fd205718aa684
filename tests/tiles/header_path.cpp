// The header path on a row of AMX: user functors against the oracle.
#include "tests/op/attention/header_path.hpp"

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

}  // namespace
