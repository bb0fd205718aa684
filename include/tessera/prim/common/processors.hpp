// The processors that threads of this process may run on, and the memory nodes beside them: those
// of several sockets, or of parts of one. `Unit`: see register_states.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/prim/common/host_device.hpp>

#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__linux__)
#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tessera::prim {

/// Processors by the numbers that the system gives them.
struct processor_set {
  static constexpr int most = 4096;

  std::uint64_t words[most / 64] = {};

  TESSERA_INLINE void add(int processor) {
    if (processor >= 0 && processor < most) {
      words[processor / 64] |= std::uint64_t{1} << processor % 64;
    }
  }
  TESSERA_INLINE bool has(int processor) const {
    return processor >= 0 && processor < most && (words[processor / 64] >> processor % 64 & 1) != 0;
  }
  TESSERA_INLINE int count() const {
    int all = 0;
    for (const std::uint64_t word : words) all += __builtin_popcountll(word);
    return all;
  }
};

/// Those that the calling thread may run on; none where the system does not say.
template <class Unit>
processor_set processors_of_thread() noexcept {
  processor_set found;
#if defined(__linux__)
  auto* const mask = reinterpret_cast<cpu_set_t*>(found.words);
  if (::sched_getaffinity(0, sizeof found.words, mask) != 0) return {};
#endif
  return found;
}

/// Those that the threads of a team may run on. Where OpenMP binds them (OMP_PROC_BIND,
/// OMP_PLACES), it has bound the calling thread to a part of them before `main`.
template <class Unit>
processor_set processors_of_process() noexcept {
#if defined(_OPENMP)
  processor_set bound;
  for (int place = 0; place < omp_get_num_places(); ++place) {
    int numbers[processor_set::most];
    const int count = omp_get_place_num_procs(place);
    if (count > processor_set::most) continue;
    omp_get_place_proc_ids(place, numbers);
    for (int i = 0; i < count; ++i) bound.add(numbers[i]);
  }
  if (bound.count() > 0) return bound;
#endif
  return processors_of_thread<Unit>();
}

/// Memory nodes that some threads run beside.
struct memory_nodes {
  static constexpr int most = 64;

  int count = 1;
  int numbers[most] = {};  ///< that the system gives them
  /// Of the node beside the processor that the calling thread runs on; not asked for one node.
  int (*number_here)() noexcept = nullptr;

  /// Which of them the calling thread runs beside now; the first one for any other node.
  TESSERA_INLINE int here() const {
    if (count == 1) return 0;
    const int number = number_here();
    for (int i = 1; i < count; ++i) {
      if (numbers[i] == number) return i;
    }
    return 0;
  }
};

/// What Linux says of the memory nodes in a folder such as /sys/devices/system/node.
template <class Unit>
class node_folder {
 public:
  explicit node_folder(const char* folder) : folder_(folder) {}

  /// Those with some of the processors; one where there is no such folder.
  memory_nodes beside(const processor_set& processors) const noexcept {
    memory_nodes found;
    found.count = 0;
    found.number_here = number_here;
    for_each_number("/online", -1, [&](int node) {
      bool has_some = false;
      for_each_number("/node", node,
                      [&](int processor) { has_some = has_some || processors.has(processor); });
      if (has_some && found.count < memory_nodes::most) found.numbers[found.count++] = node;
    });
    if (found.count == 0) found.count = 1;
    return found;
  }

 private:
  static int number_here() noexcept {
    unsigned processor = 0, node = 0;
#if defined(__linux__)
    if (::syscall(SYS_getcpu, &processor, &node, nullptr) != 0) return 0;
#endif
    return static_cast<int>(node);
  }

  /// Calls body(number) for those of a list such as "0-3,8": of the file `name`, or of the
  /// processors of a node.
  template <class Body>
  void for_each_number(const char* name, int node, const Body& body) const noexcept {
    char text[4096];
    const char* const end = text + read(name, node, text, sizeof text);
    const char* at = text;
    const auto digit = [&] { return at < end && *at >= '0' && *at <= '9'; };
    const auto number = [&] {
      int value = 0;
      for (; digit(); ++at) value = value < processor_set::most ? value * 10 + (*at - '0') : value;
      return value;
    };
    while (digit()) {
      const int first = number();
      int last = first;
      if (at < end && *at == '-') {
        ++at;
        last = number();
      }
      for (int value = first; value <= last && value < processor_set::most; ++value) body(value);
      if (at < end && *at == ',') ++at;
    }
  }

  /// Bytes read of the file; 0 where it cannot be.
  int read(const char* name, int node, char* text, int size) const noexcept {
#if defined(__linux__)
    char path[256];
    int length = 0;
    const auto append = [&](const char* part) {
      for (; *part != '\0' && length < static_cast<int>(sizeof path) - 1; ++part) {
        path[length++] = *part;
      }
    };
    append(folder_);
    append(name);
    if (node >= 0) {
      char digits[12] = {};
      int begin = 11;
      do {
        digits[--begin] = static_cast<char>('0' + node % 10);
      } while ((node /= 10) > 0);
      append(digits + begin);
      append("/cpulist");
    }
    path[length] = '\0';
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    const auto bytes = ::read(file, text, static_cast<std::size_t>(size));
    ::close(file);
    return bytes < 0 ? 0 : static_cast<int>(bytes);
#else
    return 0;
#endif
  }

  const char* folder_;
};

/// Those of this process; found out once.
template <class Unit>
const memory_nodes& nodes_of_process() noexcept {
  static const memory_nodes once =
      node_folder<Unit>("/sys/devices/system/node").beside(processors_of_process<Unit>());
  return once;
}

}  // namespace tessera::prim
