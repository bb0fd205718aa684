// Functors that mask, on a large tile; one says it for whole tiles, one goes with changed logits.
#include "tests/op/attention/header_path.hpp"

namespace {

using namespace tessera::support;

TEST(header_path, document_mask) {
  calls_of<prefill_row>().with_documents(right_on<prefill_row>);
}

TEST(header_path, prefix_lm_with_tile_classes) {
  calls_of<prefill_row>().with_prefix(right_on<prefill_row>);
}

TEST(header_path, logits_and_mask_together) {
  calls_of<prefill_row>().with_both(right_on<prefill_row>);
}

}  // namespace
