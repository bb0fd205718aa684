// What the library tells while it works. Events: choices, fallbacks, warnings, refusals, as data or
// as lines of JSON. Ranges for profilers: each launch between two calls of the application. The
// library never prints; a program that wants to know installs a sink or a profiler.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/spec/names.hpp>

namespace tessera {

enum class event_kind : std::uint8_t {
  warning,    ///< something is not as its owner meant it, e.g. an unknown environment value
  override,   ///< a row was taken because it was named
  overlay,    ///< a row was taken because a rule of an overlay names it
  measured,   ///< a row was taken because a lookup table has a line for the problem
  tuned,      ///< a row was taken because the tuner of the call measured it
  heuristic,  ///< a row was taken by predicted time
  stale_row,  ///< a table's line is not used: once per row and reason in a process
  fallback,   ///< only a generic row fits: the message names the rejected rows and the line to add
  error,      ///< no row was found, or a named one was refused
};

inline constexpr std::array<std::string_view, 9> event_kind_names{
    "warning",   "override",  "overlay",  "measured", "tuned",
    "heuristic", "stale_row", "fallback", "error"};
constexpr std::string_view name_of(event_kind kind) noexcept {
  return name_in(event_kind_names, kind);
}

/// One occurrence. The views are valid during the delivery only.
struct event {
  event_kind kind = event_kind::warning;
  std::string_view op{};   ///< "flash_attention", ...; empty for warnings about the process
  std::string_view row{};  ///< the row concerned; empty if none
  std::string_view message{};
};

/// Where events go. `deliver` is called on the thread where the event happens, may run on several
/// threads at once, and must not call back into the library.
struct event_sink {
  void (*deliver)(void* receiver, const event& what) noexcept = nullptr;
  void* receiver = nullptr;
};

namespace impl {
extern constinit std::atomic<const event_sink*> process_sink;
}

/// Installs the sink of the process, null for none, and returns the one before. The sink must
/// outlive every call that may use it. A sink given with a call (context.events) comes first.
/// Costs of an event without any sink: one relaxed atomic load.
const event_sink* set_event_sink(const event_sink* sink) noexcept;

/// The sink of the process, or null.
inline const event_sink* installed_event_sink() noexcept {
  // Relaxed on the way without a sink; whoever follows the pointer needs what it points to.
  if (impl::process_sink.load(std::memory_order_relaxed) == nullptr) return nullptr;
  return impl::process_sink.load(std::memory_order_acquire);
}

/// One line of JSON, without its break:
/// {"event":"stale_row","op":"...","row":"...","message":"..."}. Bytes that are not UTF-8 are
/// replaced.
std::string json_of(const event& what);

/// For programs that keep a log.
///
///   void write(void* file, std::string_view line) noexcept { std::fwrite(..., line ...); }
///   tessera::event_line_writer log(&write, file);
///   tessera::set_event_sink(&log.sink());
///
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

/// What a range is called.
enum class range_names : std::uint8_t {
  row,   ///< the row's name
  full,  ///< the row's name, a blank, and the problem text; the text is made for every launch
};

/// Called on the thread of the launch; must not call back into the library. The name is valid
/// during `begin` only.
struct profiler {
  void (*begin)(void* state, std::string_view name) noexcept = nullptr;
  void (*end)(void* state) noexcept = nullptr;
  void* state = nullptr;
  range_names names = range_names::row;
};

/// Installs the profiler of the process, null for none, and returns the one before. It must outlive
/// every launch that may use it. Without one a launch pays one relaxed atomic load.
const profiler* set_profiler(const profiler* one) noexcept;

/// The profiler of the process, or null.
const profiler* installed_profiler() noexcept;

}  // namespace tessera
