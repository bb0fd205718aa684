// Lookup tables for pretended devices: lines that a tuner could have written.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/lookup/table.hpp>
#include <tessera/runtime/key.hpp>

#include "pretended.hpp"

namespace tessera::testing {

/// A line that says `row` is the best for the question's problem.
inline lookup_record line_for(const question& question, std::string_view row, double median_us = 10,
                              bits_promise promise = bits_promise::none) {
  const inquiry asked = question.asked();
  const key_text key =
      key_text_of(asked.kind, asked.demand, question.threads, question.device.kind, promise);
  lookup_record line;
  line.family = asked.kind.name;
  line.semantic_version = asked.kind.semantic_version;
  line.code_version = asked.kind.code_version(question.device.kind);
  line.device_class = device_class_of(question.device).view();
  line.identity = key.identity.view();
  line.size = key.size.view();
  line.row = row;
  line.median_us = median_us;
  line.spread_us = 0.1;
  line.default_row = "default";
  line.default_us = 1.25 * median_us;
  line.samples = 9;
  line.mode = "eager hot";
  line.date = "2026-11-21T09:30:00Z";
  return line;
}

inline lookup_tables tables_of(std::vector<lookup_record> user,
                               std::vector<lookup_record> site = {},
                               std::vector<lookup_record> shipped = {}) {
  return {lookup_table(std::move(user)), lookup_table(std::move(site)),
          lookup_table(std::move(shipped))};
}

}  // namespace tessera::testing
