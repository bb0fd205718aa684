// The tuner in a program of its own: it measures the rows of the kernel library that the program is
// linked with, here those of one model, and the next plan uses what it found.
#include <cstdio>

#include <tessera/builds/my_kernels.hpp>
#include <tessera/tessera.hpp>
#include <tessera/tuner.hpp>

int main() {
  tessera::flash_problem asked;
  asked.tensors.q = tessera::shaped(tessera::dtype::bf16, {1, 1, 32, 128});
  asked.tensors.k = tessera::shaped(tessera::dtype::bf16, {1, 256, 8, 128});
  asked.tensors.v = asked.tensors.k;
  asked.options.causal = true;
  tessera::online_tuner tuner({.seconds = 0.2, .store = false});
  const tessera::context where{
      .threads = 1,
      .policy = tessera::selection_policy{.autotune = tessera::autotune_use::on_miss},
      .tuner = &tuner.hook()};
  const auto plan = tessera::plan(asked, where);
  if (!plan) {
    std::fprintf(stderr, "%s\n", plan.message().c_str());
    return 1;
  }
  const auto& choice = plan->choice();
  std::printf("%.*s (%.*s)\n", int(choice.row().size()), choice.row().data(),
              int(name_of(choice.tier).size()), name_of(choice.tier).data());
  if (choice.tier != tessera::selection_tier::autotune) {
    std::fprintf(stderr, "not tuned: %s\n", tuner.last_refusal().c_str());
    return 1;
  }
  return 0;
}
