// An engine for one model, linked with a build of exactly that model's rows: what it asks is
// checked when it is compiled, runs without a single fallback, and what the build lacks is refused
// with the row to add. With UNSERVED it asks for what the build lacks, and must not compile.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include <tessera/builds/my_kernels.hpp>
#include <tessera/tessera.hpp>

namespace {

using tessera::bf16;

constexpr std::int64_t heads = 32;
constexpr std::int64_t kv_heads = 8;
constexpr std::int64_t dim = 128;

constexpr tessera::flash_problem problem_of(std::int64_t rows, std::int64_t keys,
                                            std::int64_t head_dim = dim) {
  tessera::flash_problem asked;
  asked.tensors.q = tessera::shaped(tessera::dtype::bf16, {1, rows, heads, head_dim});
  asked.tensors.k = tessera::shaped(tessera::dtype::bf16, {1, keys, kv_heads, head_dim});
  asked.tensors.v = asked.tensors.k;
  asked.options.causal = true;
  return asked;
}

static_assert(my_kernels::serves(problem_of(512, 512)));
static_assert(my_kernels::serves(problem_of(1, 8192)));
static_assert(my_kernels::serves(problem_of(256, 8448), tessera::backend::cpu_generic));
static_assert(!my_kernels::serves(problem_of(512, 512, 72)));
// No row of another operation is in the build of a model that does not ask for it.
static_assert(!my_kernels::serves(tessera::mean_pooling_problem{
    .tensors = {.x = tessera::shaped(tessera::dtype::bf16, {1, 512, heads* dim})}}));
#ifdef UNSERVED
static_assert(my_kernels::serves(problem_of(512, 512, 72)));
#endif

struct watcher {
  int fallbacks = 0;
  static void deliver(void* self, const tessera::event& what) noexcept {
    if (what.kind != tessera::event_kind::fallback) return;
    ++static_cast<watcher*>(self)->fallbacks;
    std::fprintf(stderr, "fallback: %.*s\n", int(what.message.size()), what.message.data());
  }
};

/// Values that are 0.5 everywhere come out as they are, whatever the weights.
std::string run(std::int64_t rows, std::int64_t keys, std::int64_t head_dim = dim) {
  std::vector<bf16> q(std::size_t(rows * heads * head_dim), bf16(0.25f)), out(q.size());
  std::vector<bf16> k(std::size_t(keys * kv_heads * head_dim), bf16(0.125f)),
      v(k.size(), bf16(0.5f));
  const tessera::flash_attention_args args{
      .q = tessera::view(q.data(), {1, rows, heads, head_dim}),
      .k = tessera::view(k.data(), {1, keys, kv_heads, head_dim}),
      .v = tessera::view(v.data(), {1, keys, kv_heads, head_dim}),
      .out = tessera::view(out.data(), {1, rows, heads, head_dim})};
  if (auto done = tessera::flash_attention(args, {.causal = true}); !done) return done.message();
  for (const bf16 value : out) {
    if (!(std::abs(float(value) - 0.5f) < 0.01f)) return "out is " + std::to_string(float(value));
  }
  return {};
}

bool fails(const char* what, const std::string& fault) {
  if (!fault.empty()) std::fprintf(stderr, "%s: %s\n", what, fault.c_str());
  return !fault.empty();
}

}  // namespace

int main() {
  watcher watch;
  const tessera::event_sink sink{&watcher::deliver, &watch};
  tessera::set_event_sink(&sink);
  int faults = 0;
  faults += fails("prefill", run(96, 96));
  faults += fails("append", run(32, 160));
  faults += fails("decode", run(1, 700));
  faults += fails("events", watch.fallbacks == 0 ? "" : "the build fell back");
  const std::string refusal = run(16, 16, 72);
  std::printf("%s\n", refusal.c_str());
  const bool names_row = refusal.find("lacks attention.") != std::string::npos &&
                         refusal.find(".bf16.d72.") != std::string::npos;
  faults += fails("refusal", names_row ? "" : "names no row to add");
  return faults == 0 ? 0 : 1;
}
