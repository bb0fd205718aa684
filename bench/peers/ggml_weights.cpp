// Packed weights of 4 bits beside ggml's, in one process: `peer_ggml_weights [MxNxK ...]`, on as
// many threads as OMP_NUM_THREADS says. Weights are random; everybody packs them in its own way,
// ggml also in the order of its repacking buffers, and multiplies M rows: ours of bf16, ggml's of
// f32, which it rounds to 8 bits. Each result is judged against the weights that its packing stands
// for.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <tessera/quantized.hpp>

#include "bench/peers/turns.hpp"
#include "bench/support/ceilings.hpp"
#include "tests/support/random.hpp"

namespace {

using namespace tessera;
using bench::peers::contestant, bench::peers::product_size, bench::peers::require;

/// Rows of weights that are drawn; those behind them are the same again.
constexpr std::int64_t drawn_rows = 64;

/// Whether results of some columns are sums of `x` times rows of `weights`, but for `error` of the
/// root of the sum of squares.
template <class Read>
bool is_right(product_size size, const std::vector<float>& weights, const std::vector<float>& x,
              const Read& read, double error) {
  for (std::int64_t m = 0; m < std::min<std::int64_t>(size.m, 4); ++m) {
    for (std::int64_t n = 0; n < size.n; n += std::max<std::int64_t>(size.n / 50, 1)) {
      double sum = 0, squares = 0;
      for (std::int64_t k = 0; k < size.k; ++k) {
        const std::int64_t at = n % drawn_rows * size.k + k;
        const double term = static_cast<double>(weights[static_cast<std::size_t>(at)]) *
                            static_cast<double>(x[static_cast<std::size_t>(m * size.k + k)]);
        sum += term, squares += term * term;
      }
      const auto found =
          static_cast<double>(static_cast<float>(read(static_cast<std::size_t>(m * size.n + n))));
      if (!(std::fabs(found - sum) <= error * std::sqrt(squares))) return false;
    }
  }
  return true;
}

/// One of ours.
class own_product {
 public:
  own_product(product_size size, const quantized_options& options, const std::vector<float>& drawn,
              const std::vector<float>& x)
      : size_(size),
        options_(options),
        words_(static_cast<std::size_t>(size.n * size.k * bits_of(options) / 32)),
        floats_(has_float_scales(options.mode) ? groups() : 0),
        zeros_(options.mode == weight_mode::affine ? groups() : 0),
        bytes_(has_float_scales(options.mode) ? 0 : groups()),
        out_(static_cast<std::size_t>(size.m * size.n)) {
    for (const float each : x) x_.push_back(bf16(each));
    decoded_.resize(drawn.size());
    const std::int64_t rows = std::min(drawn_rows, size.n);
    weight_args first = weights(rows);
    first.w = view(drawn.data(), {rows, size.k});
    require(quantize(first, options_));
    first.w = view(decoded_.data(), {rows, size.k});
    require(dequantize(first, options_));
    repeat(words_), repeat(floats_), repeat(zeros_), repeat(bytes_);
  }

  void run() {
    const weight_args all = weights(size_.n);
    require(quantized_matmul({.x = view(x_.data(), {size_.m, size_.k}),
                              .w_q = all.w_q,
                              .scales = all.scales,
                              .zeros = all.zeros,
                              .out = view(out_.data(), {size_.m, size_.n})},
                             options_));
  }
  bool is_right(const std::vector<float>& x) const {
    return ::is_right(
        size_, decoded_, x, [&](std::size_t i) { return out_[i]; }, 0.03);
  }
  double bytes() const {
    return static_cast<double>(4 * (words_.size() + floats_.size() + zeros_.size()) +
                               bytes_.size());
  }

 private:
  std::int64_t groups_of_row() const { return size_.k / group_size_of(options_); }
  std::size_t groups() const { return static_cast<std::size_t>(size_.n * groups_of_row()); }
  weight_args weights(std::int64_t rows) {
    weight_args args;
    args.w_q = view(words_.data(), {rows, size_.k * bits_of(options_) / 32});
    args.scales = bytes_.empty() ? view(floats_.data(), {rows, groups_of_row()})
                                 : view(bytes_.data(), {rows, groups_of_row()});
    if (!zeros_.empty()) args.zeros = view(zeros_.data(), {rows, groups_of_row()});
    return args;
  }
  /// Gives all rows what the drawn ones have.
  template <class Element>
  void repeat(std::vector<Element>& of_rows) const {
    const std::size_t drawn =
        of_rows.size() / static_cast<std::size_t>(size_.n) * static_cast<std::size_t>(drawn_rows);
    for (std::size_t at = drawn; at < of_rows.size(); ++at) of_rows[at] = of_rows[at - drawn];
  }

  product_size size_;
  quantized_options options_;
  std::vector<std::uint32_t> words_;
  std::vector<float> floats_, zeros_;
  std::vector<std::uint8_t> bytes_;
  std::vector<bf16> x_, out_;
  std::vector<float> decoded_;
};

/// ggml's buffers of weights in an order of its own; null: it has none.
ggml_backend_buffer_type_t repacking_buffers(ggml_backend_t backend) {
  ggml_backend_device* const device = ggml_backend_get_device(backend);
  const auto find =
      reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
          ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
  if (find == nullptr) return nullptr;
  for (ggml_backend_buffer_type_t* each = find(device); each != nullptr && *each != nullptr;
       ++each) {
    if (std::strstr(ggml_backend_buft_name(*each), "REPACK") != nullptr) return *each;
  }
  return nullptr;
}

/// One of ggml's.
class peer_product {
 public:
  peer_product(ggml_backend_t backend, ggml_backend_buffer_type_t buffers, ggml_type type,
               product_size size, const std::vector<float>& drawn, const std::vector<float>& x)
      : backend_(backend), size_(size) {
    const ggml_init_params of_names{ggml_tensor_overhead() * 16 + ggml_graph_overhead(), nullptr,
                                    true};
    weights_context_ = ggml_init(of_names);
    context_ = ggml_init(of_names);
    ggml_tensor* const weights = ggml_new_tensor_2d(weights_context_, type, size.k, size.n);
    weights_buffer_ = ggml_backend_alloc_ctx_tensors_from_buft(weights_context_, buffers);
    std::vector<char> packed(ggml_nbytes(weights));
    const std::size_t row = ggml_row_size(type, size.k);
    const std::int64_t first = std::min(drawn_rows, size.n);
    ggml_quantize_chunk(type, drawn.data(), packed.data(), 0, first, size.k, nullptr);
    for (std::int64_t n = first; n < size.n; ++n) {
      std::memcpy(packed.data() + static_cast<std::size_t>(n) * row,
                  packed.data() + static_cast<std::size_t>(n % drawn_rows) * row, row);
    }
    bytes_ = static_cast<double>(packed.size());
    decoded_.resize(static_cast<std::size_t>(first * size.k));
    ggml_get_type_traits(type)->to_float(packed.data(), decoded_.data(), first * size.k);
    ggml_backend_tensor_set(weights, packed.data(), 0, packed.size());
    ggml_tensor* const rows = ggml_new_tensor_2d(context_, GGML_TYPE_F32, size.k, size.m);
    result_ = ggml_mul_mat(context_, weights, rows);
    buffer_ = ggml_backend_alloc_ctx_tensors(context_, backend);
    ggml_backend_tensor_set(rows, x.data(), 0, x.size() * sizeof(float));
    graph_ = ggml_new_graph(context_);
    ggml_build_forward_expand(graph_, result_);
  }
  ~peer_product() {
    ggml_backend_buffer_free(weights_buffer_);
    ggml_backend_buffer_free(buffer_);
    ggml_free(weights_context_);
    ggml_free(context_);
  }
  peer_product(const peer_product&) = delete;
  peer_product& operator=(const peer_product&) = delete;

  void run() { ggml_backend_graph_compute(backend_, graph_); }
  bool is_right(const std::vector<float>& x) const {
    std::vector<float> out(static_cast<std::size_t>(size_.m * size_.n));
    ggml_backend_tensor_get(result_, out.data(), 0, out.size() * sizeof(float));
    return ::is_right(
        size_, decoded_, x, [&](std::size_t i) { return out[i]; }, 0.1);
  }
  double bytes() const { return bytes_; }

 private:
  ggml_backend_t backend_;
  product_size size_;
  ggml_context *weights_context_ = nullptr, *context_ = nullptr;
  ggml_backend_buffer_t weights_buffer_ = nullptr, buffer_ = nullptr;
  ggml_tensor* result_ = nullptr;
  ggml_cgraph* graph_ = nullptr;
  double bytes_ = 0;
  std::vector<float> decoded_;
};

struct own_format {
  const char* name;
  quantized_options options;
};
struct peer_format {
  const char* name;
  ggml_type type;
  bool repacked;
};

void compare(product_size size, ggml_backend_t backend, bench::limit_probe& probe) {
  std::printf("M %lld N %lld K %lld, %d threads; of weights and scales\n",
              static_cast<long long>(size.m), static_cast<long long>(size.n),
              static_cast<long long>(size.k), probe.threads());
  support::random_source random(1);
  std::vector<float> drawn(static_cast<std::size_t>(drawn_rows * size.k)), x;
  for (float& each : drawn) each = random.bell();
  for (std::int64_t i = 0; i < size.m * size.k; ++i)
    x.push_back(static_cast<float>(bf16(random.bell())));
  std::vector<std::unique_ptr<own_product>> own;
  std::vector<std::unique_ptr<peer_product>> peers;
  std::vector<contestant> all;
  const auto add = [&](const std::string& name, auto& to, auto made) {
    auto* const product = to.emplace_back(std::move(made)).get();
    product->run();
    if (!product->is_right(x)) std::printf("  WRONG: %s\n", name.c_str());
    all.push_back({name, product->bytes(), [product] { product->run(); }});
  };
  for (const own_format& each :
       {own_format{"affine, 64", {.bits = 4, .group_size = 64}},
        own_format{"nf4, 64", {.mode = weight_mode::nf4, .group_size = 64}},
        own_format{"mxfp4", {.mode = weight_mode::mxfp4}},
        own_format{"nvfp4", {.mode = weight_mode::nvfp4}}}) {
    add(std::string("tessera ") + each.name, own,
        std::make_unique<own_product>(size, each.options, drawn, x));
  }
  ggml_backend_buffer_type* const repacking = repacking_buffers(backend);
  for (const peer_format& each : {peer_format{"Q4_0", GGML_TYPE_Q4_0, false},
                                  peer_format{"Q4_0, repacked", GGML_TYPE_Q4_0, true},
                                  peer_format{"Q4_K", GGML_TYPE_Q4_K, false},
                                  peer_format{"Q4_K, repacked", GGML_TYPE_Q4_K, true},
                                  peer_format{"MXFP4", GGML_TYPE_MXFP4, false}}) {
    if (each.repacked && repacking == nullptr) continue;
    add(std::string("ggml ") + each.name, peers,
        std::make_unique<peer_product>(backend,
                                       each.repacked ? repacking : ggml_backend_cpu_buffer_type(),
                                       each.type, size, drawn, x));
  }
  constexpr int rounds = 11;
  bench::peers::take_turns(
      all, rounds, [&] { return probe.read_rate(probe.threads()); }, "GB/s");
}

}  // namespace

int main(int count, char** texts) {
  constexpr std::int64_t step = 256;  // of Q4_K
  const std::unique_ptr<ggml_backend, decltype(&ggml_backend_free)> backend(ggml_backend_cpu_init(),
                                                                            &ggml_backend_free);
  const auto compare_all = [&](product_size size, bench::limit_probe& probe) {
    ggml_backend_cpu_set_n_threads(backend.get(), probe.threads());
    compare(size, backend.get(), probe);
  };
  return bench::peers::run_sizes(
      count, texts, step, {{1, 40960, 4096}, {4, 40960, 4096}, {16, 40960, 4096}}, compare_all);
}
