// The devices of this process; see spec/device_facts.hpp for what is known of one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <tessera/spec/device_facts.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// The machine this process runs on; found out once, at the first call. Capped by TESSERA_CPU.
const device_facts& this_device() noexcept;

/// The same without the cap.
device_facts detect_device() noexcept;

/// The CUDA devices that this process sees (CUDA_VISIBLE_DEVICES counts); 0 where the library was
/// built without CUDA, or no driver answers.
int cuda_device_count() noexcept;

/// The facts of a device, found out at the first question and kept for the life of the process. The
/// refusal, status_code::device, says what is missing: such a device, a driver, or CUDA in this
/// build.
result<const device_facts*> find_device(device_id device);

/// "cpu:0", "cuda:1".
std::string text_of(device_id device);

/// The device of that text; "cpu" and "cuda" are their first ones.
std::optional<device_id> device_named(std::string_view text) noexcept;

}  // namespace tessera
