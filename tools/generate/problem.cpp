#include "problem.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <fmt/format.h>

#include <tessera/runtime/impl/key.hpp>
#include <tessera/spec/lower.hpp>
#include <tessera/spec/problem_text.hpp>

namespace tessera::generate {

outcome<demand> demand_of_problem(std::span<const operation> operations, std::string_view line) {
  const std::string_view name = text::next_word(line);
  const auto op = std::ranges::find_if(
      operations, [&](const operation& known) { return known.is_called(name); });
  if (op == operations.end()) return refusal{fmt::format("problem: starts with '{}'", name)};
  result<owned_problem> problem = parse_problem(*op, line);
  if (!problem) return refusal{problem.message()};
  bound_call call{
      .op = &*op, .tensors = problem->tensors.data(), .options = problem->options.data()};
  std::vector<std::max_align_t> lowered(op->how->bytes / sizeof(std::max_align_t) + 1);
  const status done = lower_problem(call, problem->tensors.data(), *op->how, lowered.data());
  if (!done) return refusal{done.message()};
  demand asked;
  op->form->demand_of(problem->view(), asked);
  return asked;
}

std::string identity_of(std::span<const demand_field> fields, const demand& asked) {
  tessera::family kind;
  kind.fields = fields;
  return std::string(
      key_text_of(kind, asked, 1, device_kind::cuda, bits_promise::none).identity.view());
}

}  // namespace tessera::generate
