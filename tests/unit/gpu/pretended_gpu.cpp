#include "pretended_gpu.hpp"

// The whole host code, with the calls of CUDA below instead of the library's: so this program runs
// them on any machine, whether or not the library was built with CUDA.
#if !defined(TESSERA_CUDA)
#define TESSERA_CUDA 1
#endif
#include <cstdlib>
#include <cstring>
#include <utility>

#include <tessera/families/attention/declaration.hpp>
#include <tessera/families/attention/registry.hpp>
#include <tessera/runtime/impl/all.hpp>

namespace tessera::testing {

pretended_gpus& pretended_gpus::all() {
  static pretended_gpus only;
  return only;
}

void pretended_gpus::reset() {
  for (const auto& [memory, unused] : live) std::free(memory);
  *this = {};
  devices = {h200(), h200()};
  devices[1].ordinal = 1;
}

bool pretended_gpus::owns(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  for (const auto& [memory, used] : live) {
    const auto* const begin = static_cast<const std::byte*>(memory);
    if (at >= begin && at < begin + used.bytes) return true;
  }
  return false;
}

flash_attention_args on_gpu(flash_attention_args args, int ordinal) {
  for (std::size_t tensor = 0; tensor < attention_table::form.tensors.size(); ++tensor) {
    tensor_view& view = tensors_of(args)[tensor];
    if (view.present()) view.device = {device_kind::cuda, ordinal};
  }
  return args;
}

namespace {

/// The portable row that takes every f32 problem.
const instance& portable() {
  for (const instance& row : attention_registry()) {
    if (row.target == backend::cpu_generic &&
        row.config_as<attention_config>().type == dtype::f32 &&
        row.config_as<attention_config>().phase == attention_phase::prefill &&
        row.config_as<attention_config>().head_dim == 0) {
      return row;
    }
  }
  std::abort();
}

status launch_pretended(const attention_kernel_args& args, const launch_context& where) {
  pretended_gpus& gpus = pretended_gpus::all();
  gpus.launches.push_back({"", gpus.current, where});
  if (!gpus.launch_failure.empty()) return {status_code::device, gpus.launch_failure};
  std::vector<std::byte> scratch(portable().workspace_bytes(&args, 1) + 64);
  const auto past = reinterpret_cast<std::uintptr_t>(scratch.data()) % 64;
  return portable().launch(&args, {.threads = 1,
                                   .workspace = scratch.data() + (64 - past) % 64,
                                   .workspace_bytes = scratch.size() - 64});
}

status prepare_pretended() {
  pretended_gpus& gpus = pretended_gpus::all();
  gpus.prepared.push_back(gpus.current);
  if (!gpus.prepare_failure.empty()) return {status_code::device, gpus.prepare_failure};
  return {};
}

template <std::size_t Bytes>
std::size_t scratch_of(const attention_kernel_args&, int) {
  return Bytes;
}

constexpr attention_config any_f32 = resolved(
    {.target = backend::cuda_sm80, .features = base_features | attention_feature::dropout});

template <std::size_t Bytes>
instance row_taking(std::string_view name) {
  return instance_of<kernels::entry_functions<&scratch_of<Bytes>, &launch_pretended>>(
      "attention", name, any_f32);
}

}  // namespace

instance pretended_row(std::string_view name, std::size_t scratch_bytes) {
  instance row = scratch_bytes == 0 ? row_taking<0>(name) : row_taking<4096>(name);
  row.prepare = &prepare_pretended;
  return row;
}

}  // namespace tessera::testing

namespace tessera::impl::cuda {

namespace {

testing::pretended_gpus& gpus() {
  return testing::pretended_gpus::all();
}

status take(std::size_t bytes, void* stream, bool for_all, void*& memory) {
  if (gpus().out_of_memory) return {status_code::workspace, "workspace: out of memory"};
  memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  gpus().live[memory] = {gpus().current, bytes, stream, for_all};
  return {};
}

void give(void* memory, void* stream) noexcept {
  const auto found = gpus().live.find(memory);
  if (found == gpus().live.end()) return;
  gpus().given_back.push_back({found->second, stream});
  gpus().live.erase(found);
  std::free(memory);
}

}  // namespace

status count_devices(int& count) {
  count = static_cast<int>(gpus().devices.size());
  return {};
}
status read_facts(int ordinal, device_facts& facts) {
  facts = gpus().devices.at(static_cast<std::size_t>(ordinal));
  return {};
}
void read_versions(int& driver, int& runtime) noexcept {
  driver = 13010;
  runtime = 13000;
}

current_device::current_device(int ordinal) : before_(std::exchange(gpus().current, ordinal)) {}
current_device::~current_device() {
  gpus().current = before_;
}

status allocate(std::size_t bytes, void* stream, void*& memory) {
  return take(bytes, stream, false, memory);
}
void release(void* memory, void* stream) noexcept {
  if (memory != nullptr) give(memory, stream);
}
status allocate_for_all(std::size_t bytes, void*& memory, first_contents hold) {
  const status done = take(bytes, nullptr, true, memory);
  if (done && hold == first_contents::zeros) std::memset(memory, 0, bytes);
  return done;
}
void release_for_all(void* memory) noexcept {
  give(memory, nullptr);
}
status is_capturing(void* stream, bool& capturing) {
  capturing = gpus().captured.contains(stream);
  return {};
}
status copy(void* to, const void* from, std::size_t bytes, void*) {
  std::memcpy(to, from, bytes);
  return {};
}
status fill(void* to, int byte, std::size_t bytes, void*) {
  std::memset(to, byte, bytes);
  return {};
}
status wait(void*) {
  return gpus().lost.empty() ? status() : status(status_code::device, gpus().lost);
}
status count_faults(const prim::content_rule& rule, std::uint64_t* faults, void* stream) {
  gpus().counted_in.push_back(stream);
  for (std::int64_t entry = 0; entry < prim::entries_of(rule); ++entry) {
    *faults += prim::is_fault(rule, entry) ? 1u : 0u;
  }
  return {};
}

status make_stream(void*& stream) {
  gpus().streams += 1;
  stream = &gpus();
  return {};
}
void drop_stream(void*, void*) noexcept {}
status make_event(void*& event) {
  event = &gpus().marks.emplace_back();
  return {};
}
void drop_event(void*, void*) noexcept {}
status record(void* event, void*) {
  *static_cast<double*>(event) = gpus().clock;
  return {};
}
status seconds_between(void* begin, void* end, double& seconds) {
  seconds = *static_cast<double*>(end) - *static_cast<double*>(begin);
  return wait(nullptr);
}

}  // namespace tessera::impl::cuda
