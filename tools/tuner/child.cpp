#include "child.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <functional>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tessera::tuner {
namespace {

using clock = std::chrono::steady_clock;

constexpr std::uint32_t most_text = 4096;
constexpr int ended_by_exception = 3;

/// What precedes the text of a message in the pipe.
struct frame {
  std::uint32_t kind;
  std::uint32_t index;
  double value;
  std::uint32_t text_bytes;
  std::uint32_t unused;
};

enum message_kind : std::uint32_t { exception_kind = 0xffffffff };

/// A pipe whose ends are closed with it.
class pipe_ends {
 public:
  bool open() { return pipe2(ends_.data(), O_CLOEXEC) == 0; }
  ~pipe_ends() {
    close_end(0);
    close_end(1);
  }
  pipe_ends() = default;
  pipe_ends(const pipe_ends&) = delete;
  pipe_ends& operator=(const pipe_ends&) = delete;

  int reader() const noexcept { return ends_[0]; }
  int writer() const noexcept { return ends_[1]; }
  void close_end(std::size_t which) {
    if (ends_[which] >= 0) close(ends_[which]);
    ends_[which] = -1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

void throw_output_away() {
  const int nowhere = open("/dev/null", O_WRONLY);
  if (nowhere < 0) return;
  dup2(nowhere, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO);
}

/// The child's life. Never returns: the parent's destructors and exit handlers are not its own.
[[noreturn]] void live(const std::function<void(const child_channel&)>& work, int writer) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int caught : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTERM, SIGINT}) {
    std::signal(caught, SIG_DFL);
  }
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  throw_output_away();
  const child_channel channel(writer);
  int status = 0;
  try {
    std::thread worker([&] {
      try {
        work(channel);
      } catch (const std::exception& failed) {
        channel.send(exception_kind, 0, 0, failed.what());
        status = ended_by_exception;
      } catch (...) {
        status = ended_by_exception;
      }
    });
    worker.join();
  } catch (const std::system_error&) {
    status = ended_by_exception;
  }
  _exit(status);
}

/// Cuts the bytes that came through the pipe into messages.
class message_reader {
 public:
  void add(std::span<const char> bytes) { pending_.append(bytes.data(), bytes.size()); }

  std::optional<child_message> next() {
    frame head{};
    if (pending_.size() < sizeof head) return {};
    std::memcpy(&head, pending_.data(), sizeof head);
    const std::size_t length = std::min(head.text_bytes, most_text);
    if (pending_.size() < sizeof head + length) return {};
    child_message message{head.kind, head.index, head.value, pending_.substr(sizeof head, length)};
    pending_.erase(0, sizeof head + length);
    return message;
  }

 private:
  std::string pending_;
};

/// Waits until the pipe can be read; false when the time is over.
bool readable(int descriptor, clock::time_point until) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock::now()).count();
    pollfd watched{descriptor, POLLIN, 0};
    const int wait = static_cast<int>(std::clamp<long long>(left, 0, 3'600'000));
    const int ready = poll(&watched, 1, wait);
    if (ready > 0) return true;
    if (ready == 0 && clock::now() >= until) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

clock::time_point deadline_in(double seconds) {
  return clock::now() +
         std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(seconds));
}

struct listening {
  bool timed_out = false;
  double limit = 0;
  std::string exception;
};

/// Hands messages on until the child closes the pipe or is silent for too long.
listening listen(int reader, const std::function<double(const child_message&)>& receive,
                 double limit) {
  listening state;
  state.limit = limit;
  message_reader messages;
  std::array<char, 8192> block{};
  auto until = deadline_in(limit);
  for (;;) {
    if (!readable(reader, until)) {
      state.timed_out = true;
      return state;
    }
    const ssize_t got = read(reader, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return state;
    messages.add({block.data(), static_cast<std::size_t>(got)});
    while (const auto message = messages.next()) {
      if (message->kind == exception_kind) {
        state.exception = message->text;
        continue;
      }
      state.limit = receive(*message);
      until = deadline_in(state.limit);
    }
  }
}

int wait_for(pid_t child) {
  int ended = 0;
  while (waitpid(child, &ended, 0) < 0 && errno == EINTR) {
  }
  return ended;
}

child_outcome outcome_of(int ended, const listening& heard) {
  if (heard.timed_out) {
    return {child_end::timed_out, fmt::format("silent for {:.1f} s, killed", heard.limit)};
  }
  if (WIFSIGNALED(ended)) {
    return {child_end::crashed,
            fmt::format("ended by signal {} ({})", WTERMSIG(ended), strsignal(WTERMSIG(ended)))};
  }
  if (!heard.exception.empty()) return {child_end::crashed, "threw: " + heard.exception};
  if (WEXITSTATUS(ended) != 0) {
    return {child_end::crashed, fmt::format("ended with status {}", WEXITSTATUS(ended))};
  }
  return {};
}

}  // namespace

void child_channel::send(std::uint32_t kind, std::uint32_t index, double value,
                         std::string_view text) const {
  text = text.substr(0, most_text);
  const frame head{kind, index, value, static_cast<std::uint32_t>(text.size()), 0};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes += text;
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t wrote = write(descriptor_, bytes.data() + sent, bytes.size() - sent);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) _exit(0);
    sent += static_cast<std::size_t>(wrote);
  }
}

result<child_outcome> run_in_child(const std::function<void(const child_channel&)>& work,
                                   const std::function<double(const child_message&)>& receive,
                                   double first_limit) {
  pipe_ends ends;
  if (!ends.open()) {
    return status(status_code::device, fmt::format("child process: no pipe: {}", strerror(errno)));
  }
  const pid_t child = fork();
  if (child < 0) {
    return status(status_code::device,
                  fmt::format("child process: cannot fork: {}", strerror(errno)));
  }
  if (child == 0) live(work, ends.writer());
  ends.close_end(1);
  const listening heard = listen(ends.reader(), receive, first_limit);
  if (heard.timed_out) kill(child, SIGKILL);
  return outcome_of(wait_for(child), heard);
}

shared_memory::shared_memory(std::size_t bytes) {
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  void* const memory =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  bytes_ = {static_cast<std::byte*>(memory), bytes};
}

shared_memory::~shared_memory() {
  if (bytes_.data() != nullptr) munmap(bytes_.data(), std::max<std::size_t>(bytes_.size(), 1));
}

shared_memory::shared_memory(shared_memory&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})) {}

shared_memory& shared_memory::operator=(shared_memory&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace tessera::tuner
