// Rows full of boundaries, and decoding. The functors are chosen when they run, so that one kernel
// a row serves them all.
#include <variant>

#include "tests/op/attention/header_path.hpp"

namespace {

using namespace tessera::support;
using tessera::attention_phase;
using tessera::position;

constexpr auto all_but_weights = tessera::every_feature.without(
    tessera::attention_features{} | tessera::attention_feature::weights);

/// One register tile of rows and keys: every boundary there can be.
struct small_tile_row {
  static constexpr tessera::attention_config config{
      .target = header_path_target,
      .type = header_path_type,
      .features = tessera::every_feature,
      .block_q = tessera::register_rows(header_path_target),
      .block_kv = tessera::register_columns(header_path_target)};
};
struct decode_row {
  static constexpr tessera::attention_config config{.target = header_path_target,
                                                    .type = header_path_type,
                                                    .phase = attention_phase::decode,
                                                    .features = all_but_weights};
};

struct any_logits {
  std::variant<keeps_logits, alibi, relative_table> chosen;
  template <class Real>
  Real operator()(Real s, const position& at) const {
    return std::visit([&](const auto& functor) { return functor(s, at); }, chosen);
  }
};

/// Says of whole tiles what the chosen functor says; of its tiles a functor may say nothing.
struct any_mask {
  std::variant<keeps_all, document_mask, prefix_lm> chosen;
  bool operator()(const position& at) const {
    return std::visit([&](const auto& functor) { return functor(at); }, chosen);
  }
  tessera::prim::tile_visibility classify(const tessera::prim::score_tile& tile) const {
    const auto* prefix = std::get_if<prefix_lm>(&chosen);
    return prefix != nullptr ? prefix->classify(tile) : tessera::prim::tile_visibility::partial;
  }
};

template <class Row>
class header_path_boundaries : public testing::Test {
 protected:
  static functor_calls calls() { return calls_of<Row>(); }
  static constexpr auto right = [](const auto& call, const auto& logits, const auto& mask) {
    expect_right<Row>(call, any_logits{logits}, any_mask{mask});
  };
};
using boundary_rows = testing::Types<small_tile_row, decode_row>;
TYPED_TEST_SUITE(header_path_boundaries, boundary_rows);

TYPED_TEST(header_path_boundaries, plain_calls_are_right) {
  this->calls().plain(this->right);
}

TYPED_TEST(header_path_boundaries, alibi) {
  this->calls().with_alibi(this->right);
}

TYPED_TEST(header_path_boundaries, relative_position_table) {
  this->calls().with_relative_table(this->right);
}

TYPED_TEST(header_path_boundaries, document_mask) {
  this->calls().with_documents(this->right);
}

TYPED_TEST(header_path_boundaries, prefix_lm_with_tile_classes) {
  this->calls().with_prefix(this->right);
}

TYPED_TEST(header_path_boundaries, logits_and_mask_together) {
  this->calls().with_both(this->right);
}

}  // namespace
