#include "measuring_place.hpp"

#include <cstdint>
#include <cstring>
#include <string>

#include "child.hpp"
#include "gpu_place.hpp"
#include "host_place.hpp"

namespace tessera::tuner {

std::unique_ptr<measuring_place> place_on(const device_facts& device) {
  if (device.kind == device_kind::cuda) return std::make_unique<gpu_place>(device);
  return std::make_unique<host_place>();
}

result<device_facts> facts_in_child(device_id gpu) {
  constexpr double most_seconds = 120;  // the first use of a driver loads it
  enum report : std::uint32_t { found_facts, no_facts };
  const shared_memory shared(sizeof(device_facts));
  status refusal(status_code::device, text_of(gpu) + ": says nothing");
  bool known = false;
  const auto work = [&](const child_channel& parent) {
    const result<const device_facts*> found = find_device(gpu);
    if (!found) return parent.send(no_facts, 0, 0, found.message());
    std::memcpy(shared.bytes().data(), *found, sizeof(device_facts));
    parent.send(found_facts);
  };
  const auto receive = [&](const child_message& message) {
    known = message.kind == found_facts;
    if (!known) refusal = status(status_code::device, message.text);
    return most_seconds;
  };
  const result<child_outcome> ended = run_in_child(work, receive, most_seconds);
  if (!ended) return ended.failure();
  if (ended->end != child_end::finished) {
    return status(status_code::device,
                  text_of(gpu) + ": the process that asked for it " + ended->text);
  }
  if (!known) return refusal;
  device_facts facts;
  std::memcpy(&facts, shared.bytes().data(), sizeof facts);
  return facts;
}

}  // namespace tessera::tuner
