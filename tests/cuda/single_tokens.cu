// Single tokens over pages whose heads are the columns of products: batches whose blocks find their
// items by the lengths of all sequences, batches whose blocks share keys between their warps, and
// graphs that are replayed with other lengths. Judged by the definition; what nobody sees is not a
// number.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <tessera/launch_cuda.hpp>

#include "tests/cuda/decode_pages.hpp"
#include "tests/cuda/device_values.hpp"

namespace tessera::device_test {
namespace {

constexpr std::int64_t kv_heads = 2, dim = 64;

/// Of -2 to 2.
std::uint16_t some_number(std::size_t at, unsigned seed) {
  const auto mixed = (static_cast<std::uint32_t>(at) + seed * 0x9e3779b9u) * 0x85ebca6bu;
  return bf16_of(static_cast<float>((mixed ^ (mixed >> 15)) >> 8 & 0xffff) * 0x1p-14f - 2.0f);
}

struct batch_form {
  std::string name;
  std::int64_t sequences = 1, page_size = 16, group = 4;
  std::int64_t longest = 3000;  ///< keys of a sequence
  std::int64_t room = 3000;     ///< that it may have: where there is much there are items
  std::int64_t window = 1 << 29;
  bool sinks = false;
};

class token_batch {
 public:
  token_batch(const batch_form& form, int multiprocessors)
      : form_(form),
        heads_(form.group * kv_heads),
        pages_of_sequence_((form.longest + form.page_size - 1) / form.page_size),
        q_(bells(form.sequences * heads_ * dim, 1)),
        keys_(pool_elements()),
        values_(pool_elements()),
        table_(static_cast<std::size_t>(form.sequences * pages_of_sequence_)),
        sinks_(static_cast<std::size_t>(heads_), 1.5f),
        on_device_(*this),
        bytes_(kernels::attention::sm80::workspace_bytes<decode_row>(args(), multiprocessors)),
        workspace_(std::vector<std::byte>(bytes_ + 1, std::byte{0xff})),
        multiprocessors_(multiprocessors) {}

  /// Puts other lengths, tables, keys and values where those of before lay.
  void send(const std::vector<std::int32_t>& lengths, unsigned seed) {
    lengths_ = lengths;
    std::mt19937 random(seed);
    for (std::size_t at = 0; at < table_.size(); ++at) table_[at] = static_cast<std::int32_t>(at);
    std::ranges::shuffle(table_, random);
    std::ranges::fill(keys_, 0x7fc0);
    std::ranges::fill(values_, 0x7fc0);
    for (std::int64_t n = 0; n < form_.sequences; ++n) {
      for (std::int64_t j = first_seen(n); j < length(n); ++j) {
        for (std::int64_t d = 0; d < kv_heads * dim; ++d) {
          const std::size_t at = place(n, j) + static_cast<std::size_t>(d);
          keys_[at] = some_number(at, seed);
          values_[at] = some_number(at, seed + 100);
        }
      }
    }
    on_device_.send(*this);
  }

  status launch(cudaStream_t stream) {
    launch_context context;
    context.threads = multiprocessors_;
    context.stream = stream;
    context.workspace = workspace_.data();
    context.workspace_bytes = bytes_;
    return kernels::attention::sm80::launch<decode_row>(args(), context);
  }

  void expect_right(cudaStream_t stream) {
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    const std::vector<std::uint16_t> out = on_device_.out.fetch();
    const std::vector<float> lse = on_device_.lse.fetch();
    for (std::int64_t row = 0; row < form_.sequences * heads_; ++row) {
      std::vector<double> expected;
      const double expected_lse = attend(row, expected);
      double error = 0, size = 1e-4;
      for (std::size_t d = 0; d < expected.size(); ++d) {
        const double found = float_of(out[static_cast<std::size_t>(row * dim) + d]);
        error = std::max(error, std::isnan(found) ? 1e30 : std::abs(found - expected[d]));
        size = std::max(size, std::abs(expected[d]));
      }
      ASSERT_LT(error / size, 2e-2) << "row " << row << ", keys " << length(row / heads_);
      const double found = lse[static_cast<std::size_t>(row)];
      if (std::isinf(expected_lse)) {
        ASSERT_EQ(found, expected_lse) << row;
      } else {
        ASSERT_NEAR(found, expected_lse, 1e-3) << row;
      }
    }
  }

 private:
  struct tensors {
    explicit tensors(const token_batch& of)
        : q(of.q_),
          k(of.keys_),
          v(of.values_),
          out(std::vector<std::uint16_t>(of.q_.size(), 0xffff)),
          lse(std::vector<float>(of.q_.size() / dim, -1.0f)),
          sinks(of.sinks_),
          table(of.table_),
          lengths(std::vector<std::int32_t>(static_cast<std::size_t>(of.form_.sequences))) {}
    void send(const token_batch& of) {
      const auto copy = [](void* to, const void* from, std::size_t bytes) {
        ASSERT_EQ(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
      };
      copy(k.data(), of.keys_.data(), of.keys_.size() * 2);
      copy(v.data(), of.values_.data(), of.values_.size() * 2);
      copy(table.data(), of.table_.data(), of.table_.size() * 4);
      copy(lengths.data(), of.lengths_.data(), of.lengths_.size() * 4);
      ASSERT_EQ(cudaMemset(out.data(), 0xff, of.q_.size() * 2), cudaSuccess);
    }
    device_values<std::uint16_t> q, k, v, out;
    device_values<float> lse, sinks;
    device_values<std::int32_t> table, lengths;
  };

  std::vector<std::uint16_t> pool_elements() const {
    return std::vector<std::uint16_t>(
        static_cast<std::size_t>(form_.sequences * pages_of_sequence_ * form_.page_size * kv_heads *
                                 dim),
        0x7fc0);
  }
  std::int64_t length(std::int64_t n) const { return lengths_[static_cast<std::size_t>(n)]; }
  std::int64_t first_seen(std::int64_t n) const {
    return std::max<std::int64_t>(0, length(n) - 1 - form_.window);
  }
  std::size_t place(std::int64_t n, std::int64_t j) const {
    const std::int64_t page =
        table_[static_cast<std::size_t>(n * pages_of_sequence_ + j / form_.page_size)];
    return static_cast<std::size_t>((page * form_.page_size + j % form_.page_size) * kv_heads *
                                    dim);
  }

  attention_kernel_args args() {
    attention_kernel_args args;
    args.q = on_device_.q.data();
    args.k = on_device_.k.data();
    args.v = on_device_.v.data();
    args.out = on_device_.out.data();
    args.q_strides = args.out_strides = {heads_ * dim, heads_ * dim, dim};
    args.k_strides = args.v_strides = {form_.page_size * kv_heads * dim, kv_heads * dim, dim};
    args.pages = {on_device_.table.data(), pages_of_sequence_, form_.page_size,
                  static_cast<std::int64_t>(table_.size())};
    args.lse = {on_device_.lse.data(), heads_, 1, heads_};
    if (form_.sinks) {
      args.sinks = on_device_.sinks.data();
      args.sink_head_stride = args.sink_count = 1;
    }
    args.seqlens_k = on_device_.lengths.data();
    args.pool_type = dtype::bf16;
    args.batch = form_.sequences;
    args.q_len = 1;
    args.kv_len = form_.room;
    args.q_heads = static_cast<int>(heads_);
    args.kv_heads = kv_heads;
    args.head_dim = args.v_head_dim = dim;
    args.softmax_scale = 0.125f;
    args.causal = true;
    args.window_left = form_.window;
    args.window_right = 0;
    return args;
  }

  /// The definition, of row `row` of all heads; returns the logarithm of its sum.
  double attend(std::int64_t row, std::vector<double>& out) const {
    const std::int64_t n = row / heads_, kv_head = row % heads_ / form_.group;
    const auto at = [](std::size_t base, std::int64_t offset) {
      return base + static_cast<std::size_t>(offset);
    };
    std::vector<double> logits;
    double largest = form_.sinks ? 1.5 : -std::numeric_limits<double>::infinity();
    for (std::int64_t j = first_seen(n); j < length(n); ++j) {
      double logit = 0;
      for (std::int64_t d = 0; d < dim; ++d) {
        logit += float_of(q_[static_cast<std::size_t>(row * dim + d)]) *
                 float_of(keys_[at(place(n, j), kv_head * dim + d)]);
      }
      logits.push_back(0.125 * logit);
      largest = std::max(largest, logits.back());
    }
    double sum = form_.sinks ? std::exp(1.5 - largest) : 0.0;
    out.assign(dim, 0.0);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double weight = std::exp(logits[i] - largest);
      sum += weight;
      const std::size_t base = place(n, first_seen(n) + static_cast<std::int64_t>(i));
      for (std::int64_t d = 0; d < dim; ++d) {
        out[static_cast<std::size_t>(d)] += weight * float_of(values_[at(base, kv_head * dim + d)]);
      }
    }
    if (sum == 0.0) return -std::numeric_limits<double>::infinity();
    for (double& x : out) x /= sum;
    return largest + std::log(sum);
  }

  batch_form form_;
  std::int64_t heads_, pages_of_sequence_;
  std::vector<std::uint16_t> q_, keys_, values_;
  std::vector<std::int32_t> table_, lengths_;
  std::vector<float> sinks_;
  tensors on_device_;
  std::size_t bytes_;
  device_values<std::byte> workspace_;
  int multiprocessors_;
};

/// A few long among short ones, all alike, none, falling, at random.
std::vector<std::vector<std::int32_t>> lengths_of(const batch_form& form) {
  const auto longest = static_cast<std::int32_t>(form.longest);
  std::mt19937 random(11);
  std::vector<std::vector<std::int32_t>> all(5);
  for (std::int32_t n = 0; n < form.sequences; ++n) {
    all[0].push_back(n % 7 == 3 ? longest : n % 3);
    all[1].push_back(257);
    all[2].push_back(0);
    all[3].push_back(longest / (n + 1));
    all[4].push_back(static_cast<std::int32_t>(random() % 300));
  }
  return all;
}

class single_tokens : public testing::TestWithParam<batch_form> {};

TEST_P(single_tokens, see_their_keys_in_every_replay) {
  int multiprocessors = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0),
            cudaSuccess);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  token_batch batch(GetParam(), multiprocessors);
  const auto all = lengths_of(GetParam());
  batch.send(all[0], 1);
  const status done = batch.launch(stream);
  ASSERT_TRUE(done) << done.message();
  batch.expect_right(stream);
  cudaGraph_t recorded = nullptr;
  cudaGraphExec_t ready = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_TRUE(batch.launch(stream));
  ASSERT_EQ(cudaStreamEndCapture(stream, &recorded), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&ready, recorded, 0), cudaSuccess);
  std::size_t nodes = 0;
  ASSERT_EQ(cudaGraphGetNodes(recorded, nullptr, &nodes), cudaSuccess);
  const bool has_items = GetParam().room > GetParam().longest;
  EXPECT_EQ(nodes, has_items ? 2u : 1u) << "no kernel was to write a list";
  for (std::size_t n = 0; n < all.size() && !HasFatalFailure(); ++n) {
    SCOPED_TRACE("lengths " + std::to_string(n));
    batch.send(all[n], static_cast<unsigned>(n) + 2);
    ASSERT_EQ(cudaGraphLaunch(ready, stream), cudaSuccess);
    batch.expect_right(stream);
  }
  cudaGraphExecDestroy(ready);
  cudaGraphDestroy(recorded);
  cudaStreamDestroy(stream);
}

constexpr std::int64_t wide = std::int64_t{1} << 26;  // as many bytes as are worth items

INSTANTIATE_TEST_SUITE_P(
    batches, single_tokens,
    testing::Values(
        batch_form{.name = "alone", .group = 8},
        batch_form{.name = "few", .sequences = 3, .page_size = 1, .group = 1, .sinks = true},
        batch_form{.name = "blocks_of_six", .sequences = 60, .page_size = 32},
        batch_form{.name = "waves", .sequences = 500, .longest = 400, .room = 400, .window = 100},
        batch_form{.name = "items", .sequences = 40, .page_size = 48, .room = wide},
        batch_form{.name = "items_of_windows",
                   .sequences = 33,
                   .group = 3,
                   .room = wide,
                   .window = 900,
                   .sinks = true},
        batch_form{.name = "items_of_many",
                   .sequences = 1000,
                   .page_size = 256,
                   .group = 2,
                   .longest = 500,
                   .room = wide}),
    [](const auto& form) { return form.param.name; });

}  // namespace
}  // namespace tessera::device_test
