// Sparse attention where only a device has something to prove: with nothing hidden, blocksparse
// attention has the bits of the dense row that it stands on; masks of whole blocks say what masks
// say that are asked about pairs, with the same bits but on Hopper; tokens side by side that share
// selected blocks see what each of them selects.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention/operations.hpp>
#include <tessera/families/attention_backward/declaration.hpp>
#include <tessera/families/sparse_attention/declaration.hpp>
#include <tessera/families/sparse_attention/family.hpp>
#include <tessera/flash_attention.hpp>
#include <tessera/sparse_attention.hpp>

#include "tests/support/call_run.hpp"
#include "tests/support/place.hpp"
#include "tests/support/random.hpp"

namespace tessera::device_test {
namespace {

/// Rows of a head dim, dense and sparse.
struct row_names {
  std::int64_t head_dim;
  const char *dense, *sparse, *dense_gradients, *sparse_gradients;
};
constexpr row_names rows_of_head_dims[] = {
    {64, "attention.cuda_sm80.bf16.d64.128x64.w4b2r",
     "sparse_attention.cuda_sm80.blocksparse.forward.bf16.d64",
     "attention_backward.cuda_sm80.bf16.d64.128x128",
     "sparse_attention.cuda_sm80.blocksparse.backward.bf16.d64"},
    {128, "attention.cuda_sm80.bf16.d128.128x64.w4b2",
     "sparse_attention.cuda_sm80.blocksparse.forward.bf16.d128",
     "attention_backward.cuda_sm80.bf16.d128.128x128",
     "sparse_attention.cuda_sm80.blocksparse.backward.bf16.d128"}};

/// Tensors [1, heads, tokens, head dim] of one call.
struct tokens_of_heads {
  static constexpr std::int64_t q_heads = 4, kv_heads = 2;
  std::int64_t head_dim, length;
  std::vector<bf16> q, k, v, out, d_out, d_q, d_k, d_v;
  std::vector<float> lse;

  explicit tokens_of_heads(std::int64_t width, std::int64_t tokens = 700)
      : head_dim(width), length(tokens) {
    support::random_source random(5);
    for (auto [rows, heads] :
         {std::pair{&q, q_heads}, {&k, kv_heads}, {&v, kv_heads}, {&d_out, q_heads}}) {
      for (std::int64_t at = 0; at < heads * length * width; ++at) {
        rows->emplace_back(random.bell());
      }
    }
    out.resize(q.size());
    d_q.resize(q.size());
    d_k.resize(k.size());
    d_v.resize(v.size());
    lse.resize(q_heads * length);
  }
  tensor_view rows(std::vector<bf16>& of, std::int64_t heads) const {
    return view(of.data(), {1, heads, length, head_dim});
  }
  std::vector<std::uint16_t> bits() const {
    std::vector<std::uint16_t> all;
    for (const auto* of : {&out, &d_q, &d_k, &d_v}) {
      for (const bf16 value : *of) all.push_back(value.bits);
    }
    return all;
  }
  void clear_gradients() {
    for (auto* of : {&d_q, &d_k, &d_v}) std::fill(of->begin(), of->end(), bf16(0.0f));
  }
};

/// The same tensor with heads behind tokens.
tensor_view heads_last(tensor_view of) {
  std::swap(of.extent[1], of.extent[2]);
  std::swap(of.stride[1], of.stride[2]);
  return of;
}

TEST(blocksparse_attention, with_nothing_hidden_has_the_bits_of_the_dense_row) {
  for (const row_names& rows : rows_of_head_dims) {
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(std::string(rows.sparse) + (causal ? ", causal" : ""));
      tokens_of_heads of(rows.head_dim);
      const tensor_view q = of.rows(of.q, of.q_heads), k = of.rows(of.k, of.kv_heads);
      const tensor_view v = of.rows(of.v, of.kv_heads), out = of.rows(of.out, of.q_heads);
      const flash_attention_args dense{
          .q = heads_last(q), .k = heads_last(k), .v = heads_last(v), .out = heads_last(out)};
      const flash_attention_options dense_options{.causal = causal};
      const found_operation flash = operation_named("flash_attention");
      ASSERT_TRUE(support::call_here(*flash.kind, {flash.op, tensors_of(dense), &dense_options},
                                     {.row = rows.dense}));
      const std::vector<std::uint16_t> wanted = of.bits();
      std::fill(of.out.begin(), of.out.end(), bf16(0.0f));

      const std::vector<std::uint8_t> shown(static_cast<std::size_t>(of.q_heads * 6 * 6), 1);
      const blocksparse_attention_args sparse{
          .q = q,
          .k = k,
          .v = v,
          .block_mask = view(shown.data(),
                             {std::int64_t{1}, std::int64_t{1}, std::int64_t{6}, std::int64_t{6}}),
          .out = out};
      const blocksparse_attention_options sparse_options{
          .causal = causal, .block_q = 128, .block_k = 128};
      const found_operation known = operation_named("blocksparse_attention");
      ASSERT_TRUE(support::call_here(*known.kind, {known.op, tensors_of(sparse), &sparse_options},
                                     {.row = rows.sparse}));
      EXPECT_EQ(of.bits(), wanted);
    }
  }
}

/// Runs an operation on a row of the library, with tensors in device memory.
template <class Args, class Options>
void run_on(const char* row, const char* operation, const Args& args, const Options& options) {
  const found_operation known = operation_named(operation);
  const status done =
      support::call_here(*known.kind, {known.op, tensors_of(args), &options}, {.row = row});
  ASSERT_TRUE(done) << done.message();
}

/// Runs a row with a mask of blocks of 64 x 128, and with a mask of pairs besides that hides
/// nothing. `bits`: sums of weights are added up in the same order.
void expect_results_of_pairs(const char* row, std::int64_t mask_heads, bool causal, bool bits,
                             tokens_of_heads& of) {
  // The first blocks of keys are not finite, and hidden from every second block of rows; some rows
  // see nothing.
  const std::int64_t block_rows = (of.length + 63) / 64, block_keys = (of.length + 127) / 128;
  std::vector<std::uint8_t> shown;
  for (std::int64_t at = 0; at < mask_heads * block_rows * block_keys; ++at) {
    const std::int64_t block = at / block_keys % block_rows, key = at % block_keys;
    shown.push_back(block % 5 != 3 && (block + key + at / 100) % (key == 0 ? 2 : 3) == 0 ? 1 : 0);
  }
  for (auto* rows : {&of.k, &of.v}) {
    std::fill(rows->begin(), rows->begin() + 3 * of.head_dim,
              bf16(std::numeric_limits<float>::quiet_NaN()));
  }
  const std::uint8_t all_pairs = 1;
  blocksparse_attention_args args{
      .q = of.rows(of.q, of.q_heads),
      .k = of.rows(of.k, of.kv_heads),
      .v = of.rows(of.v, of.kv_heads),
      .block_mask = view(shown.data(), {std::int64_t{1}, mask_heads, block_rows, block_keys}),
      .out = of.rows(of.out, of.q_heads),
      .lse = view(of.lse.data(), {std::int64_t{1}, of.q_heads, of.length})};
  const blocksparse_attention_options options{.causal = causal, .block_q = 64, .block_k = 128};
  run_on(row, "blocksparse_attention", args, options);
  const std::vector<bf16> got = of.out;
  const std::vector<float> got_lse = of.lse;
  args.mask =
      view(&all_pairs, {std::int64_t{1}, std::int64_t{1}, std::int64_t{1}, std::int64_t{1}});
  std::fill(of.out.begin(), of.out.end(), bf16(-1.0f));
  run_on(row, "blocksparse_attention", args, options);
  const auto are_same = [bits](auto x, auto y) {
    const auto a = static_cast<float>(x), b = static_cast<float>(y);
    // A unit in the last place of bf16.
    const bool near = !bits && std::fabs(a - b) <= std::fabs(b) / 128 + 1e-5f;
    return a == b || near || (std::isnan(a) && std::isnan(b));
  };
  EXPECT_TRUE(std::equal(got.begin(), got.end(), of.out.begin(), are_same));
  EXPECT_TRUE(std::equal(got_lse.begin(), got_lse.end(), of.lse.begin(), are_same));
}

TEST(blocksparse_attention, masks_of_whole_blocks_say_what_masks_of_pairs_say) {
  for (const support::tested_row& tested : support::tested_rows()) {
    if (tested.kind->name != sparse_attention_family::name) continue;
    const auto& config = tested.row->config_as<sparse_attention_config>();
    if (config.pattern != sparse_pattern::blocksparse || config.pass != kernel_pass::forward ||
        config.type != dtype::bf16 || !support::runs_here(config.target)) {
      continue;
    }
    const std::string row(tested.row->name);
    const bool bits = config.target != backend::cuda_sm90;
    for (const bool causal : {false, true}) {
      for (const std::int64_t heads : {std::int64_t{1}, tokens_of_heads::q_heads}) {
        SCOPED_TRACE(row + (causal ? ", causal" : "") + (heads == 1 ? "" : ", of each head"));
        tokens_of_heads of(config.head_dim);
        expect_results_of_pairs(row.c_str(), heads, causal, bits, of);
      }
    }
    // More work tiles than blocks have two of, the last of which are taken in another order, and
    // more tiles of keys than a word has bits.
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(row + ", many work tiles" + (causal ? ", causal" : ""));
      tokens_of_heads of(config.head_dim, 12200);
      expect_results_of_pairs(row.c_str(), 1, causal, bits, of);
    }
  }
}

TEST(blocksparse_attention, with_nothing_hidden_has_the_gradients_of_the_dense_row) {
  for (const row_names& rows : rows_of_head_dims) {
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(std::string(rows.sparse_gradients) + (causal ? ", causal" : ""));
      tokens_of_heads of(rows.head_dim);
      const std::vector<std::uint8_t> shown(static_cast<std::size_t>(6 * 6), 1);
      const blocksparse_attention_args forward{
          .q = of.rows(of.q, of.q_heads),
          .k = of.rows(of.k, of.kv_heads),
          .v = of.rows(of.v, of.kv_heads),
          .out = of.rows(of.out, of.q_heads),
          .lse = view(of.lse.data(), {1, of.q_heads, of.length})};
      run_on("sparse_attention.cuda_sm80.blocksparse.forward", "blocksparse_attention", forward,
             blocksparse_attention_options{.causal = causal});
      const blocksparse_attention_backward_args sparse{
          .q = forward.q,
          .k = forward.k,
          .v = forward.v,
          .block_mask = view(shown.data(),
                             {std::int64_t{1}, std::int64_t{1}, std::int64_t{6}, std::int64_t{6}}),
          .out = forward.out,
          .lse = forward.lse,
          .d_out = of.rows(of.d_out, of.q_heads),
          .d_q = of.rows(of.d_q, of.q_heads),
          .d_k = of.rows(of.d_k, of.kv_heads),
          .d_v = of.rows(of.d_v, of.kv_heads)};
      const attention_backward_args dense{.q = heads_last(sparse.q),
                                          .k = heads_last(sparse.k),
                                          .v = heads_last(sparse.v),
                                          .out = heads_last(sparse.out),
                                          .lse = sparse.lse,
                                          .d_out = heads_last(sparse.d_out),
                                          .d_q = heads_last(sparse.d_q),
                                          .d_k = heads_last(sparse.d_k),
                                          .d_v = heads_last(sparse.d_v)};
      run_on(rows.dense_gradients, "flash_attention_backward", dense,
             flash_attention_options{.causal = causal});
      const std::vector<std::uint16_t> wanted = of.bits();
      of.clear_gradients();
      run_on(rows.sparse_gradients, "blocksparse_attention_backward", sparse,
             blocksparse_attention_options{.causal = causal, .block_q = 128, .block_k = 128});
      EXPECT_EQ(of.bits(), wanted);
    }
  }
}

/// Tokens whose blocks are partly those of the tokens around them: the first, their own, others
/// that change every few tokens, one of them named twice, and numbers that are no block's.
struct selecting_tokens {
  static constexpr std::int64_t q_heads = 12, kv_heads = 1, length = 500, block = 48, slots = 6;
  static constexpr std::int64_t spoiled = 101, column = 3;
  std::int64_t head_dim;
  std::vector<bf16> q, k, v, out;
  std::vector<std::int32_t> numbers;

  explicit selecting_tokens(std::int64_t width) : head_dim(width) {
    support::random_source random(11);
    for (auto [rows, heads] : {std::pair{&q, q_heads}, {&k, kv_heads}, {&v, kv_heads}}) {
      for (std::int64_t at = 0; at < heads * length * width; ++at) {
        rows->emplace_back(random.bell());
      }
    }
    v[static_cast<std::size_t>(spoiled * width + column)] =
        bf16(std::numeric_limits<float>::quiet_NaN());
    out.resize(q.size());
    for (std::int64_t token = 0; token < length; ++token) {
      const auto own = static_cast<std::int32_t>(token / block);
      const auto changing = static_cast<std::int32_t>(token / 5 % 4 * own / 4);
      for (const std::int32_t number :
           {0, own, changing, token % 7 == 0 ? 0 : -1, token % 3 == 0 ? own + 1 : 1 << 20, own}) {
        numbers.push_back(number);
      }
    }
  }
  bool sees_spoiled(std::int64_t token) const {
    if (token < spoiled) return false;
    const auto* of = numbers.data() + token * slots;
    return std::find(of, of + slots, static_cast<std::int32_t>(spoiled / block)) != of + slots;
  }
  void run(std::string_view row) {
    std::fill(out.begin(), out.end(), bf16(-1.0f));
    const native_sparse_attention_args args{
        .q = view(q.data(), {std::int64_t{1}, length, q_heads, head_dim}),
        .k = view(k.data(), {std::int64_t{1}, length, kv_heads, head_dim}),
        .v = view(v.data(), {std::int64_t{1}, length, kv_heads, head_dim}),
        .block_indices = view(numbers.data(), {std::int64_t{1}, length, kv_heads, slots}),
        .out = view(out.data(), {std::int64_t{1}, length, q_heads, head_dim})};
    run_on(std::string(row).c_str(), "native_sparse_attention", args,
           native_sparse_attention_options{.block_size = block, .block_count = slots});
  }
};

TEST(native_sparse_attention, tokens_that_share_blocks_see_their_own) {
  for (const support::tested_row& tested : support::tested_rows()) {
    if (tested.kind->name != sparse_attention_family::name) continue;
    const auto& config = tested.row->config_as<sparse_attention_config>();
    if (config.pattern != sparse_pattern::native_sparse || config.type != dtype::bf16 ||
        !support::runs_here(config.target)) {
      continue;
    }
    SCOPED_TRACE(std::string(tested.row->name));
    selecting_tokens of(config.head_dim);
    of.run("sparse_attention.cuda_sm80.native_sparse.forward");
    const std::vector<bf16> wanted = of.out;
    of.run(tested.row->name);
    for (std::size_t at = 0; at < wanted.size(); ++at) {
      const auto token = static_cast<std::int64_t>(at) / of.head_dim / selecting_tokens::q_heads;
      const auto column = static_cast<std::int64_t>(at) % of.head_dim;
      const auto got = static_cast<float>(of.out[at]);
      if (column == selecting_tokens::column && of.sees_spoiled(token)) {
        ASSERT_TRUE(std::isnan(got)) << "token " << token;
      } else {
        ASSERT_NEAR(got, static_cast<float>(wanted[at]), 0.02) << "token " << token;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::device_test
