// Events as lines of JSON, for programs that keep a log.
//
//   void write(void* file, std::string_view line) noexcept { std::fwrite(..., line ...); }
//   tessera::event_line_writer log(&write, file);
//   tessera::set_event_sink(&log.sink());
#pragma once

#include <string>
#include <string_view>

#include <tessera/runtime/events.hpp>

namespace tessera {

/// One line of JSON, without its break:
/// {"event":"stale_row","op":"...","row":"...","message":"..."}. Bytes that are not UTF-8 are
/// replaced.
std::string json_of(const event& what);

/// A sink that hands each event to a function of the application as a line of JSON, break included.
/// The function may be called from several threads at once.
class event_line_writer {
 public:
  using writer = void (*)(void* state, std::string_view line) noexcept;

  event_line_writer(writer write, void* state) noexcept : write_(write), state_(state) {}
  event_line_writer(const event_line_writer&) = delete;
  event_line_writer& operator=(const event_line_writer&) = delete;

  const event_sink& sink() const noexcept { return sink_; }

 private:
  static void deliver(void* receiver, const event& what) noexcept;

  writer write_;
  void* state_;
  event_sink sink_{&deliver, this};
};

}  // namespace tessera
