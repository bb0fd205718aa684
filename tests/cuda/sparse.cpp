// Blocksparse attention where only a device has something to prove: with nothing hidden it has the
// bits of the dense row that it stands on.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention/lower.hpp>
#include <tessera/families/attention_backward/lower.hpp>
#include <tessera/families/sparse_attention/lower.hpp>
#include <tessera/flash_attention.hpp>
#include <tessera/sparse_attention.hpp>

#include "tests/support/call_run.hpp"
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
  static constexpr std::int64_t q_heads = 4, kv_heads = 2, length = 700;
  std::int64_t head_dim;
  std::vector<bf16> q, k, v, out, d_out, d_q, d_k, d_v;
  std::vector<float> lse;

  explicit tokens_of_heads(std::int64_t width) : head_dim(width) {
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

}  // namespace
}  // namespace tessera::device_test
