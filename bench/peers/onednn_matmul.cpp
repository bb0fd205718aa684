// Products of matrices beside oneDNN's, with weights as they are stored and packed beforehand, in
// one process: `peer_onednn_matmul [MxNxK ...]`, on as many threads as OMP_NUM_THREADS says.
// Results of everybody are judged against sums in double.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <dnnl.hpp>

#include <tessera/grouped_matmul.hpp>
#include <tessera/scaled_matmul.hpp>

#include "bench/peers/turns.hpp"
#include "bench/support/ceilings.hpp"
#include "tests/support/random.hpp"

namespace {

using namespace tessera;
using bench::peers::contestant, bench::peers::product_size, bench::peers::require;

template <class Element>
constexpr dnnl::memory::data_type peer_type =
    std::is_same_v<Element, float>         ? dnnl::memory::data_type::f32
    : std::is_same_v<Element, bf16>        ? dnnl::memory::data_type::bf16
    : std::is_same_v<Element, std::int8_t> ? dnnl::memory::data_type::s8
                                           : dnnl::memory::data_type::s32;

/// out = a b of one size and layout, b stored [k, n], or [n, k].
template <class Element, class Result>
class product {
 public:
  product(product_size size, bool transposed)
      : size_(size),
        transposed_(transposed),
        a_(static_cast<std::size_t>(size.m * size.k)),
        b_(static_cast<std::size_t>(size.k * size.n)),
        out_(static_cast<std::size_t>(size.m * size.n)) {
    support::random_source random(1);
    for (Element& x : a_) x = drawn(random);
    for (Element& x : b_) x = drawn(random);
  }

  /// oneDNN's; `packed`: b is put in its own order beforehand, outside of what is timed.
  std::optional<contestant> peer(bool packed) {
    using dnnl::memory;
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    const memory::desc a({size_.m, size_.k}, peer_type<Element>, memory::format_tag::ab);
    const memory::desc b({size_.k, size_.n}, peer_type<Element>,
                         transposed_ ? memory::format_tag::ba : memory::format_tag::ab);
    const memory::desc any({size_.k, size_.n}, peer_type<Element>, memory::format_tag::any);
    const memory::desc out({size_.m, size_.n}, peer_type<Result>, memory::format_tag::ab);
    try {
#if DNNL_VERSION_MAJOR >= 3
      const dnnl::matmul::primitive_desc known(engine, a, packed ? any : b, out);
#else
      const dnnl::matmul::primitive_desc known({a, packed ? any : b, out}, engine);
#endif
      dnnl::stream stream(engine);
      memory stored(b, engine, b_.data()), weights = stored;
      if (packed && known.weights_desc() != b) {
        weights = memory(known.weights_desc(), engine);
        dnnl::reorder(stored, weights).execute(stream, stored, weights);
        stream.wait();
      }
      const std::unordered_map<int, memory> operands{
          {DNNL_ARG_SRC, memory(a, engine, a_.data())},
          {DNNL_ARG_WEIGHTS, weights},
          {DNNL_ARG_DST, memory(out, engine, out_.data())}};
      const dnnl_version_t* const version = dnnl_version();
      const std::string name = "oneDNN " + std::to_string(version->major) + "." +
                               std::to_string(version->minor) + (packed ? ", packed" : "");
      return contestant{name, size_.operations(),
                        [call = dnnl::matmul(known), stream, operands]() mutable {
                          call.execute(stream, operands);
                          stream.wait();
                        }};
    } catch (const dnnl::error& failure) {
      std::printf("  oneDNN refuses: %s\n", failure.what());
      return std::nullopt;
    }
  }

  std::int64_t rows_of_b() const {
    return transposed_ ? size_.n : size_.k;
  }
  std::int64_t columns_of_b() const {
    return transposed_ ? size_.k : size_.n;
  }
  tensor_view a() {
    return view(a_.data(), {size_.m, size_.k});
  }
  tensor_view b() {
    return view(b_.data(), {rows_of_b(), columns_of_b()});
  }
  std::vector<Result>& out() {
    return out_;
  }
  product_size size() const {
    return size_;
  }

  /// Whether `read(i)`, element i of a result, is what it should be, at some hundred places.
  template <class Read>
  bool is_right(const Read& read) const {
    support::random_source random(2);
    for (int sample = 0; sample < 300; ++sample) {
      const std::int64_t m = random.below(size_.m), n = random.below(size_.n);
      double sum = 0, squares = 0;
      for (std::int64_t k = 0; k < size_.k; ++k) {
        const std::int64_t at = transposed_ ? n * size_.k + k : k * size_.n + n;
        const double term =
            static_cast<double>(static_cast<float>(a_[static_cast<std::size_t>(m * size_.k + k)])) *
            static_cast<double>(static_cast<float>(b_[static_cast<std::size_t>(at)]));
        sum += term, squares += term * term;
      }
      const double found = static_cast<double>(read(static_cast<std::size_t>(m * size_.n + n)));
      if (!(std::fabs(found - sum) <= 1e-3 * std::sqrt(squares))) return false;
    }
    return true;
  }

 private:
  static Element drawn(support::random_source& random) {
    if constexpr (std::is_same_v<Element, std::int8_t>) {
      return static_cast<std::int8_t>(static_cast<int>(random.below(256)) - 128);
    } else {
      return Element(random.bell());
    }
  }

  product_size size_;
  bool transposed_;
  std::vector<Element> a_, b_;
  std::vector<Result> out_;
};

/// Times `own` beside the peer; `out` is what `own` fills.
template <class Product, class Own, class Out>
void compare(const char* title, Product& of, const Own& own, const Out& out,
             const bench::chains::chain_loop& chain, bench::limit_probe& probe) {
  const auto [m, n, k] = of.size();
  std::printf("%s M %lld N %lld K %lld, %d threads\n", title, static_cast<long long>(m),
              static_cast<long long>(n), static_cast<long long>(k), probe.threads());
  std::vector<contestant> all{{"tessera", of.size().operations(), own}};
  own();
  if (!of.is_right([&](std::size_t i) { return out[i]; })) std::puts("  WRONG: tessera");
  for (const bool packed : {false, true}) {
    std::optional<contestant> peer = of.peer(packed);
    if (!peer) continue;
    peer->run();
    if (!of.is_right([&](std::size_t i) { return of.out()[i]; })) {
      std::printf("  WRONG: %s\n", peer->name.c_str());
    }
    all.push_back(std::move(*peer));
  }
  constexpr int rounds = 9;
  bench::peers::take_turns(
      all, rounds, [&] { return probe.rate_of(chain, probe.threads()); }, "GOP/s");
}

template <class Element>
void compare_floats(const char* title, product_size size, bool transposed,
                    const bench::chains::chain_loop& chain, bench::limit_probe& probe) {
  product<Element, float> of(size, transposed);
  std::vector<float> out(of.out().size());
  const grouped_matmul_args args{
      .lhs = of.a(), .rhs = of.b(), .out = view(out.data(), {size.m, size.n})};
  compare(
      title, of, [&] { require(matmul(args, {.transpose_rhs = transposed})); }, out, chain, probe);
}

void compare_bytes(product_size size, bench::limit_probe& probe) {
  product<std::int8_t, std::int32_t> of(size, true);
  std::vector<float> out(of.out().size()),
      ones(static_cast<std::size_t>(std::max(size.m, size.n)), 1);
  const scaled_matmul_args args{.lhs = of.a(),
                                .rhs = of.b(),
                                .lhs_scale = view(ones.data(), {size.m, 1}),
                                .rhs_scale = view(ones.data(), {size.n, 1}),
                                .out = view(out.data(), {size.m, size.n})};
  compare(
      "i8, rhs [N, K], ours with scales of rows and columns,", of,
      [&] { require(scaled_matmul(args, {.scales = product_scales::rows})); }, out,
      bench::chains::byte_dot(), probe);
}

void compare_all(product_size size, bench::limit_probe& probe) {
  const bench::chains::chain_loop floats = bench::chains::fma();
  const bench::chains::chain_loop pairs =
      bench::chains::bf16_dot().run != nullptr ? bench::chains::bf16_dot() : floats;
  compare_floats<float>("f32", size, false, floats, probe);
  compare_floats<float>("f32, rhs [N, K],", size, true, floats, probe);
  compare_floats<bf16>("bf16", size, false, pairs, probe);
  compare_floats<bf16>("bf16, rhs [N, K],", size, true, pairs, probe);
  if (bench::chains::byte_dot().run != nullptr) compare_bytes(size, probe);
}

}  // namespace

int main(int count, char** texts) {
  return bench::peers::run_sizes(count, texts, 1, {{512, 4096, 4096}, {64, 4096, 4096}},
                                 &compare_all);
}
