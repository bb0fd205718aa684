// Functors that change logits, on a large tile.
#include "tests/op/attention/header_path.hpp"

namespace {

using namespace tessera::support;

TEST(header_path, plain_calls_are_right) {
  calls_of<prefill_row>().plain(right_on<prefill_row>);
}

TEST(header_path, alibi) {
  calls_of<prefill_row>().with_alibi(right_on<prefill_row>);
}

TEST(header_path, relative_position_table) {
  calls_of<prefill_row>().with_relative_table(right_on<prefill_row>);
}

}  // namespace
