// Events as JSON lines.
#include <string>

#include <gtest/gtest.h>

#include <tessera/runtime/events.hpp>

namespace tessera::testing {
namespace {

TEST(EventLines, AreJsonWhateverIsInThem) {
  EXPECT_EQ(
      json_of({event_kind::stale_row, "attention", "a.b", "says \"no\"\\\n\t"}),
      R"({"event":"stale_row","op":"attention","row":"a.b","message":"says \"no\"\\\n\u0009"})");
  EXPECT_EQ(json_of({.kind = event_kind::warning, .message = "caf\xC3\xA9 \xF0\x9F\x98\x80"}),
            "{\"event\":\"warning\",\"op\":\"\",\"row\":\"\",\"message\":\"caf\xC3\xA9 "
            "\xF0\x9F\x98\x80\"}");
  EXPECT_EQ(
      json_of({.kind = event_kind::warning, .message = "\x7F \xC2\x80\xC2\x9B\xC2\x9F \xC2\xA0"}),
      "{\"event\":\"warning\",\"op\":\"\",\"row\":\"\",\"message\":\"\\u007f \\u0080\\u009b\\u009f "
      "\xC2\xA0\"}");
  for (const char* broken :
       {"\xFF", "\xC3", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE0\x80\x80", "\x80"}) {
    const std::string line = json_of({.message = broken});
    EXPECT_NE(line.find("\"message\":\"\\ufffd"), std::string::npos) << line;
    for (const char letter : line) EXPECT_LT(static_cast<unsigned char>(letter), 0x80);
  }
}

TEST(EventLines, GoToTheApplication) {
  std::string log;
  event_line_writer writer(
      [](void* state, std::string_view line) noexcept {
        static_cast<std::string*>(state)->append(line);
      },
      &log);
  const event what{event_kind::heuristic, "attention", "row", "because"};
  writer.sink().deliver(writer.sink().receiver, what);
  writer.sink().deliver(writer.sink().receiver, what);
  EXPECT_EQ(log, json_of(what) + "\n" + json_of(what) + "\n");
}

}  // namespace
}  // namespace tessera::testing
