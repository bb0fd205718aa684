// What the host code asks of the CUDA runtime. Two sets of definitions: the rest of this folder,
// one unit of a build with CUDA, and absent.hpp. No CUDA header is needed to call them.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::prim {
struct content_rule;
}  // namespace tessera::prim

namespace tessera::impl::cuda {

/// Success, where there are 0 devices too; else why nobody can tell.
status count_devices(int& count);
/// The device exists.
status read_facts(int ordinal, device_facts& facts);
void read_versions(int& driver, int& runtime) noexcept;

/// Makes a device the calling thread's current one until the end of the scope.
class current_device {
 public:
  explicit current_device(int ordinal);
  ~current_device();
  current_device(const current_device&) = delete;
  current_device& operator=(const current_device&) = delete;

  const status& entered() const noexcept { return entered_; }

 private:
  status entered_;
  [[maybe_unused]] int before_ = -1;  ///< -1: nothing to restore
};

/// Memory from the library's pool of the current device, in the order of a stream.
status allocate(std::size_t bytes, void* stream, void*& memory);
void release(void* memory, void* stream) noexcept;
/// The same for any stream: usable when it returns, given back when nobody uses it any more.
enum class first_contents : std::uint8_t { any, zeros };
status allocate_for_all(std::size_t bytes, void*& memory,
                        first_contents hold = first_contents::any);
void release_for_all(void* memory) noexcept;

status is_capturing(void* stream, bool& capturing);

status copy(void* to, const void* from, std::size_t bytes, void* stream);
status fill(void* to, int byte, std::size_t bytes, void* stream);
status wait(void* stream);

/// Adds how many entries in the device's memory break a rule to a number that lies there too.
status count_faults(const prim::content_rule& rule, std::uint64_t* faults, void* stream);

/// What drops them takes a stream too, as what gives memory back does, and looks at none.
status make_stream(void*& stream);
void drop_stream(void* stream, void*) noexcept;
status make_event(void*& event);
void drop_event(void* event, void*) noexcept;
status record(void* event, void* stream);
status seconds_between(void* begin, void* end, double& seconds);

}  // namespace tessera::impl::cuda
