#include "token_rows.hpp"

#include <algorithm>

#include <tessera/spec/tensor_view.hpp>

#include "tests/reference/store.hpp"
#include "tests/support/random.hpp"

namespace tessera::tool {

namespace {

constexpr std::int64_t most_elements = 1 << 22;  ///< of all rows, where they are not wide

}  // namespace

std::uint64_t identity_of(const replay::request& asked, std::size_t number, std::int64_t position) {
  const bool common = asked.shared && position < asked.shared->tokens;
  const std::uint64_t owner = common ? 2 * asked.shared->prefix + 1 : 2 * number;
  return support::stream(owner, static_cast<std::uint64_t>(position)).bits();
}

token_rows::token_rows(std::int64_t elements, dtype type, std::uint64_t seed)
    : count_(
          static_cast<std::size_t>(std::clamp<std::int64_t>(most_elements / elements, 61, 1021))),
      bytes_(static_cast<std::size_t>(elements) * size_of(type)),
      memory_(count_ * bytes_) {
  support::random_source random(seed);
  tensor_view all;
  all.type = type;
  all.data = memory_.data();
  for (std::int64_t n = 0; n < elements * static_cast<std::int64_t>(count_); ++n) {
    reference::store(all, n, static_cast<double>(random.bell()));
  }
}

}  // namespace tessera::tool
