// libFuzzer target: any bytes as a lookup table. What is read is written as lines that read as the
// same, every record that holds is found, and a sound line behind the bytes is never lost.
// Checksums would keep the fuzzer out of the columns, so the same bytes are read with right ones,
// too.
//   fuzz_lookup -max_total_time=60 tests/fuzz/corpus/lookup
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <tessera/lookup/impl/record.hpp>
#include <tessera/lookup/impl/table.hpp>

namespace {

using namespace tessera;

[[noreturn]] void fail(const char* what, const std::string& text) {
  std::fprintf(stderr, "%s: %s\n", what, text.c_str());
  std::abort();
}

const lookup_record& sound_record() {
  static const lookup_record record{.family = "family",
                                    .code_version = "code",
                                    .device_class = "device",
                                    .identity = "type=f32",
                                    .size = "n=4096",
                                    .row = "row",
                                    .median_us = 1,
                                    .date = "2026-11-21T09:30:00Z"};
  return record;
}

void check_table(const lookup_text& text) {
  const lookup_table table(text.records);
  for (const lookup_record& record : table.records()) {
    const lookup_record* const found = table.exact(
        record.family, record.device_class, record.identity, record.size, record.code_version);
    if (found == nullptr || found->size != record.size) fail("is not found", line_of(record));
    const nearest_record near = table.nearest(record.family, record.device_class, record.identity,
                                              record.size, 0, record.code_version);
    if (near && near.log2_distance > 1e-4) fail("is not the nearest to itself", line_of(record));
  }
}

void check(const std::string& bytes) {
  const lookup_text text = parse_table(bytes);
  if (text.lines != text.damaged + text.newer + static_cast<std::int64_t>(text.records.size())) {
    fail("lines do not add up", bytes);
  }
  for (const lookup_record& record : text.records) {
    if (const std::string fault = fault_of(record); !fault.empty())
      fail("read with a fault", fault);
    const auto again = parse_line(line_of(record));
    if (!again) fail("written, but not read", line_of(record) + " (" + again.message() + ")");
    if (*again != record) fail("changed", line_of(record));
  }
  for (const char* const end : {"\n", ""}) {
    const lookup_text longer = parse_table(bytes + end + line_of(sound_record()) + "\n");
    if (longer.records.empty() || longer.records.back() != sound_record()) {
      fail("a sound line was lost", bytes);
    }
  }
  check_table(text);
}

/// The text with a right checksum behind the last tab of each line.
std::string sealed(std::string_view text) {
  std::string all;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::string_view checked = line.substr(0, line.rfind('\t'));
    all.append(checked).append("\t").append(lookup_form::crc_text(checked)).append("\n");
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  check(bytes);
  check(sealed(bytes));
  return 0;
}
