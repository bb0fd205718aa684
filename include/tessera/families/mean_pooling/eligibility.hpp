// Which mean pooling rows can run which problems, and what is in the way if one cannot.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/families/mean_pooling/config.hpp>
#include <tessera/families/mean_pooling/problem.hpp>
#include <tessera/spec/size_bucket.hpp>

namespace tessera {

/// Everything that the choice of a row may depend on, read off a problem once. Eligibility and cost
/// see nothing else, so a remembered choice is sound if exactly this is compared.
struct mean_pooling_demand {
  dtype type = dtype::none;
  pooling_pass pass = pooling_pass::forward;
  bool packed = false;
  bool weighted = false;
  mean_pooling_sizes sizes{};
  friend constexpr bool operator==(const mean_pooling_demand&,
                                   const mean_pooling_demand&) = default;
};

constexpr mean_pooling_demand demand_of(const mean_pooling_problem& problem) noexcept {
  return {.type = problem.x.type,
          .pass = pass_of(problem.op),
          .packed = is_packed(problem),
          .weighted = problem.mask.present(),
          .sizes = sizes_of(problem)};
}

/// The key of a lookup table's line.
constexpr mean_pooling_key key_of(const mean_pooling_demand& demand) noexcept {
  const mean_pooling_sizes& sizes = demand.sizes;
  const std::int64_t divisor = std::max<std::int64_t>(sizes.sequences, 1);
  mean_pooling_key key;
  key.identity = {.type = demand.type,
                  .pass = demand.pass,
                  .chunks = sizes.chunk > 0,
                  .packed = demand.packed,
                  .weighted = demand.weighted};
  key.bucket = {.sequences = size_bucket(sizes.sequences),
                .length = size_bucket((sizes.tokens + divisor - 1) / divisor),
                .columns = size_bucket(sizes.columns),
                .chunk = size_bucket(sizes.chunk)};
  return key;
}

/// The first thing that keeps a row from running a problem.
enum class mean_pooling_mismatch : std::uint8_t { none, pass, type };

/// Compares a row with what is asked; the device is not looked at. Rows take every size and option.
constexpr mean_pooling_mismatch mismatch_of(const mean_pooling_config& config,
                                            const mean_pooling_demand& demand) noexcept {
  if (config.pass != demand.pass) return mean_pooling_mismatch::pass;
  if (config.type != demand.type) return mean_pooling_mismatch::type;
  return mean_pooling_mismatch::none;
}

/// The same for a problem; its shapes must fit together (see `lower`).
constexpr mean_pooling_mismatch mismatch_of(const mean_pooling_config& config,
                                            const mean_pooling_problem& problem) noexcept {
  return mismatch_of(config, demand_of(problem));
}

constexpr std::string_view name_of(pooling_pass pass) noexcept {
  return pass == pooling_pass::forward ? "forward" : "backward";
}

/// The mismatch as a sentence with both sides: "dtype is f32, the row has bf16".
inline std::string sentence_of(mean_pooling_mismatch mismatch, const mean_pooling_config& config,
                               const mean_pooling_demand& demand) {
  const auto sides = [](std::string_view what, std::string_view asked, std::string_view row) {
    std::string sentence(what);
    return sentence.append(" is ").append(asked).append(", the row has ").append(row);
  };
  switch (mismatch) {
    case mean_pooling_mismatch::none:
      return "the row runs the problem";
    case mean_pooling_mismatch::pass:
      return sides("pass", name_of(demand.pass), name_of(config.pass));
    case mean_pooling_mismatch::type:
      return sides("dtype", name_of(demand.type), name_of(config.type));
  }
  return "invalid";
}
inline std::string sentence_of(mean_pooling_mismatch mismatch, const mean_pooling_config& config,
                               const mean_pooling_problem& problem) {
  return sentence_of(mismatch, config, demand_of(problem));
}

}  // namespace tessera
