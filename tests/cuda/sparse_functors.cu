// Mask functors of blocksparse attention on the GPU: kernels that know them have the bits of the
// rows that read a mask tensor, also where a mask of blocks, made on the device, lists what they
// say.
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/sparse_attention/declaration.hpp>
#include <tessera/launch_cuda.hpp>
#include <tessera/sparse_attention.hpp>

#include "tests/cuda/device.hpp"
#include "tests/cuda/device_image.hpp"
#include "tests/op/sparse_attention/functors.hpp"

namespace tessera::device_test {
namespace {

/// Rows of gradients, also of the library's table under their names, and forward rows beside them.
struct matrix_backward {
  static constexpr sparse_attention_config config{.target = backend::cuda_sm80,
                                                  .pass = sparse_pass::backward,
                                                  .type = dtype::bf16,
                                                  .head_dim = 64};
  static constexpr const char* name = "sparse_attention.cuda_sm80.blocksparse.backward.bf16.d64";
};
struct any_backward {
  static constexpr sparse_attention_config config{.target = backend::cuda_sm80,
                                                  .pass = sparse_pass::backward};
  static constexpr const char* name = "sparse_attention.cuda_sm80.blocksparse.backward";
};
struct matrix_row {
  static constexpr sparse_attention_config config{
      .target = backend::cuda_sm80, .type = dtype::bf16, .head_dim = 64};
  static constexpr const char* name = "sparse_attention.cuda_sm80.blocksparse.forward.bf16.d64";
  using backward = matrix_backward;
};
struct any_row {
  static constexpr sparse_attention_config config{.target = backend::cuda_sm80};
  static constexpr const char* name = "sparse_attention.cuda_sm80.blocksparse.forward";
  using backward = any_backward;
};

/// Calls `run(args on the device, stream)` with the tensors in device memory.
template <class Args, class Run>
void run_there(std::span<const tensor_form> forms, const Args& args, const Run& run) {
  const stream stream;
  device_image image(forms, tensors_of(args));
  image.send(stream.handle());
  const status done = run(image.args<Args>(first_device), stream.handle());
  ASSERT_TRUE(done) << done.message();
  EXPECT_TRUE(image.fetch(stream.handle())) << "device memory outside the outputs was written";
}

status call_row(const blocksparse_attention_args& args,
                const blocksparse_attention_options& options, const context& where) {
  return blocksparse_attention(args, options, where);
}
status call_row(const blocksparse_attention_backward_args& args,
                const blocksparse_attention_options& options, const context& where) {
  return blocksparse_attention_backward(args, options, where);
}

/// Runs a call on the row, with a functor; without one by the library.
template <class Row, class Args, class Mask>
void run(std::span<const tensor_form> forms, const Args& args,
         const blocksparse_attention_options& options, const Mask& mask) {
  run_there(forms, args, [&](const Args& there, cudaStream_t stream) {
    if constexpr (std::is_same_v<Mask, prim::no_mask_functor>) {
      return call_row(there, options, {.row = Row::name, .device = first_device, .stream = stream});
    } else {
      return launch<Row>(there, options, cuda{.stream = stream}, mask_hooks<Mask>({}, mask));
    }
  });
}

/// All that a call writes, forward and backward.
template <class Row, class Call, class Mask>
std::vector<float> results_of(Call& call, const block_mask* blocks, const Mask& mask) {
  call.clear();
  auto args = call.args();
  auto backward = call.backward_args();
  blocksparse_attention_options options;
  if (blocks != nullptr) {
    EXPECT_TRUE(blocks->apply_to(args, options));
    EXPECT_TRUE(blocks->apply_to(backward, options));
  }
  run<Row>(blocksparse_table::form.tensors, args, options, mask);
  run<typename Row::backward>(blocksparse_table::backward_form.tensors, backward, options, mask);
  return call.results();
}

/// The mask of blocks of a functor whose memory is the device's.
template <class Mask>
std::vector<std::uint8_t> blocks_on_device(const block_grid& grid, const Mask& mask) {
  std::vector<std::uint8_t> blocks(static_cast<std::size_t>(grid.blocks()));
  const device_bytes memory = allocate_on_device(blocks.size());
  const stream stream;
  const status done =
      write_block_mask(grid, mask, reinterpret_cast<std::uint8_t*>(memory.get()), stream.handle());
  EXPECT_TRUE(done) << done.message();
  stream.wait();
  require(cudaMemcpy(blocks.data(), memory.get(), blocks.size(), cudaMemcpyDeviceToHost), "copy");
  return blocks;
}

void expect_bytes(const std::vector<std::uint8_t>& blocks, const block_mask& wanted) {
  const auto* const bytes = static_cast<const std::uint8_t*>(wanted.blocks().data);
  EXPECT_EQ(blocks, std::vector<std::uint8_t>(bytes, bytes + wanted.grid().blocks()));
}

/// `here` is the functor on the host, `there` the same with what it points to on the device; masks
/// of it have so many heads.
template <class Row, class Call, class Mask>
void expect_bits_of_pairs(Call& call, const Mask& here, const Mask& there, std::int64_t heads) {
  const auto pairs = block_mask::from_function(call.grid(call.q_len, call.kv_len, heads), here);
  ASSERT_TRUE(pairs) << pairs.message();
  const auto wanted = results_of<Row>(call, &*pairs, prim::no_mask_functor{});
  // Heads with masks of their own are rows of tiles of their own; a functor's share tiles.
  if (heads == 1 || call.kv_heads == call.q_heads) {
    EXPECT_EQ(results_of<Row>(call, nullptr, there), wanted) << "without a list";
  }
  for (const std::int64_t block_k : {32, 64, 100}) {
    SCOPED_TRACE(block_k);
    const block_grid grid = call.grid(64, block_k, heads);
    const auto listed = block_mask::from_function(grid, here, block_pairs::left_out);
    ASSERT_TRUE(listed) << listed.message();
    EXPECT_EQ(results_of<Row>(call, &*listed, there), wanted);
    const auto kept = block_mask::from_function(grid, here);
    EXPECT_EQ(results_of<Row>(call, &*kept, prim::no_mask_functor{}), wanted);
    expect_bytes(blocks_on_device(grid, there), *listed);
  }
}

template <class Row, class Element>
void expect_bits_of_pairs(std::int64_t head_dim) {
  using call_type = support::sparse_call<Element>;
  using support::documents_or_blocks;
  call_type call(300, 420, head_dim, head_dim);
  const std::vector<std::int32_t> documents = support::documents_of(420);
  const std::size_t bytes = documents.size() * sizeof(std::int32_t);
  const device_bytes memory = allocate_on_device(bytes);
  require(cudaMemcpy(memory.get(), documents.data(), bytes, cudaMemcpyHostToDevice), "copy");
  const auto* const there = reinterpret_cast<const std::int32_t*>(memory.get());
  expect_bits_of_pairs<Row>(call, documents_or_blocks{documents.data()}, documents_or_blocks{there},
                            1);
  for (const std::int64_t kv_heads : {std::int64_t{2}, call_type::q_heads}) {
    call_type of_heads(300, 420, head_dim, head_dim, kv_heads);
    expect_bits_of_pairs<Row>(of_heads, documents_or_blocks{}, documents_or_blocks{},
                              call_type::q_heads);
  }

  // Where the functor does not speak for tiles, a block's pairs are asked about side by side.
  const block_grid grid = call.grid(48, 30);
  const auto listed = block_mask::from_function(grid, support::same_document{documents.data()});
  expect_bytes(blocks_on_device(grid, support::same_document{there}), *listed);
}

TEST(sparse_functors, have_the_bits_of_a_mask_tensor_on_the_matrix_unit) {
  expect_bits_of_pairs<matrix_row, bf16>(64);
}

TEST(sparse_functors, have_the_bits_of_a_mask_tensor_for_any_type) {
  expect_bits_of_pairs<any_row, float>(24);
}

TEST(sparse_functors, rows_refuse_tensors_of_the_host) {
  support::sparse_call<> call(3, 3, 8, 8);
  const status done =
      launch<any_row>(call.args(), {}, cuda{}, with_mask(support::documents_or_blocks{}));
  EXPECT_EQ(done.code(), status_code::invalid_argument);
  EXPECT_EQ(done.message(), "q: device is cpu:0, the row runs on GPUs");
}

}  // namespace
}  // namespace tessera::device_test
