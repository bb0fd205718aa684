// Configurations as row patterns.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include <tessera/runtime/config_classes.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/words.hpp>

namespace tessera {

namespace {

/// The part of a pattern that a field's value becomes; empty if the value has no such form.
[[gnu::cold]] std::string pattern_word(std::string_view field, std::string_view value) {
  if (value == "None" || value == "any" || value == "auto") return "*";
  if (field == "backend") {
    if (value == "cpu") return "cpu_*";
    return value == "gpu" || value == "cuda" ? "cuda_*" : "";
  }
  int number = 0;
  return text::read_number(value, number) && number > 0 ? std::string(value) : std::string();
}

}  // namespace

[[gnu::cold]] result<std::string> row_pattern_of(std::string_view config_class_name,
                                                 std::string_view fields) {
  const auto refused = [&](sentence_parts parts) -> result<std::string> {
    return refusal(status_code::malformed,
                   {"configuration ", config_class_name, ": ", sentence(parts)});
  };
  const config_class* const found = config_class_named(config_class_name);
  if (found == nullptr) return refused({"there is no such class"});
  if (found->pattern.empty()) return refused({"its kernels are not in this version"});
  std::string pattern(found->pattern);
  while (!fields.empty()) {
    const std::string_view word = text::split_off(fields, ' ');
    if (word.empty()) continue;
    const std::size_t equals = word.find('=');
    std::string_view field = word.substr(0, equals);
    if (field.starts_with("fwd_params."))
      field.remove_prefix(std::string_view("fwd_params.").size());
    if (equals == std::string_view::npos) {
      return refused({"'", word, "' has no '=', fields are name=value"});
    }
    const std::string place = sentence({"{", field, "}"});
    const std::size_t at = pattern.find(place);
    const bool elsewhere =
        std::ranges::find(config_fields, field, &config_field::field) != config_fields.end();
    if (at == std::string::npos && elsewhere) continue;
    if (at == std::string::npos) return refused({"has no field '", field, "'"});
    const std::string value = pattern_word(field, word.substr(equals + 1));
    if (value.empty()) {
      return refused({word, " must be ",
                      field == "backend" ? "any, cpu or gpu" : "a positive number or None"});
    }
    pattern.replace(at, place.size(), value);
  }
  for (std::size_t open = pattern.find('{'); open != std::string::npos; open = pattern.find('{')) {
    pattern.replace(open, pattern.find('}', open) + 1 - open, "*");
  }
  return pattern;
}

}  // namespace tessera
