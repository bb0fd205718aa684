#include "tunable_family.hpp"

#include <chrono>

namespace tessera::tuner {

result<double> tunable_problem::time(std::size_t round, std::size_t repeats) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < repeats; ++i) {
    if (status done = run(round + i); !done) return done;
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace tessera::tuner
