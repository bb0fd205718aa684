#include "doctor_gpus.hpp"

#include <string_view>

#include <boost/json/array.hpp>
#include <fmt/format.h>

#include "device_file.hpp"
#include "failure.hpp"
#include "terminal.hpp"

namespace tessera::tool {

namespace {

namespace json = boost::json;

std::string version_text(int version) {
  return version > 0 ? fmt::format("{}.{}", version / 1000, version % 1000 / 10)
                     : std::string("none");
}

double gibibytes(std::int64_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(std::int64_t{1} << 30);
}

void print_facts(const device_facts& facts) {
  print(styled(style::bold, fmt::format("GPU {}", text_of(facts.id()))) + "\n");
  print_fact("product", fmt::format("{}, compute capability {}.{}", facts.product_name(),
                                    facts.compute_capability / 10, facts.compute_capability % 10));
  std::string targets;
  for (const backend target : all_backends) {
    if (facts.runs(target)) targets += (targets.empty() ? "" : ", ") + std::string(name_of(target));
  }
  print_fact("back ends", targets.empty() ? "none" : targets);
  print_fact("cores",
             fmt::format("{} multiprocessors, at most {:.3g} GHz, {} KiB of shared memory each, "
                         "{} KiB for a block",
                         facts.multiprocessors, facts.core_clock_khz * 1e-6,
                         facts.shared_bytes_per_multiprocessor / 1024,
                         facts.shared_bytes_per_block / 1024));
  print_fact("memory",
             fmt::format("{:.1f} GiB, {:.0f} GB/s by its clock, L2 {:.4g} MiB",
                         gibibytes(facts.memory_bytes), facts.memory_bytes_per_second() * 1e-9,
                         static_cast<double>(facts.l2_bytes) / (1 << 20)));
}

void print_limits(const bench::device_ceilings& limits) {
  print_fact("f32 FMA", fmt::format("{:8.1f} TFLOP/s", limits.fma_f32_gflops * 1e-3));
  print_fact("mma.sync", fmt::format("{:8.1f} TFLOP/s of bf16, {:.1f} of tf32",
                                     limits.mma_bf16_gflops * 1e-3, limits.mma_tf32_gflops * 1e-3));
  print_fact("read", fmt::format("{:8.1f} GB/s", limits.read_gbytes));
  print_fact("copy",
             fmt::format("{:8.1f} GB/s      (bytes read and bytes written)", limits.copy_gbytes));
}

}  // namespace

examined_gpus examine_gpus() {
  examined_gpus found;
  found.versions = find_cuda_versions();
  for (int ordinal = 0; ordinal < cuda_device_count(); ++ordinal) {
    const device_id gpu{device_kind::cuda, ordinal};
    const result<const device_facts*> facts = find_device(gpu);
    examined_gpu examined;
    examined.facts.kind = device_kind::cuda;
    examined.facts.ordinal = ordinal;
    if (!facts) {
      examined.refusal = facts.message();
    } else {
      examined.facts = **facts;
      const result<bench::device_ceilings> limits = bench::measure_ceilings_of(gpu);
      if (limits) {
        examined.limits = *limits;
      } else {
        examined.refusal = limits.message();
      }
    }
    found.gpus.push_back(std::move(examined));
  }
  return found;
}

void check_gpus(const examined_gpus& found, std::vector<finding>& findings) {
  const auto& [driver, runtime] = found.versions;
  if (runtime > 0 && driver == 0) {
    findings.push_back({"this build has CUDA, and no NVIDIA driver answers",
                        "install the driver, or pass the devices to the container"});
  } else if (runtime > 0 && found.gpus.empty()) {
    findings.push_back({"a driver answers, and it shows 0 GPUs",
                        "look at CUDA_VISIBLE_DEVICES and at nvidia-smi"});
  }
  if (driver > 0 && driver / 1000 < runtime / 1000) {
    findings.push_back({fmt::format("the driver is of CUDA {}, the library of {}",
                                    version_text(driver), version_text(runtime)),
                        "install a newer driver"});
  }
  for (const examined_gpu& gpu : found.gpus) {
    const std::string name = text_of(gpu.facts.id());
    if (!gpu.refusal.empty()) {
      findings.push_back({fmt::format("{} cannot be measured: {}", name, gpu.refusal),
                          "look at nvidia-smi, or build the library for this GPU "
                          "(TESSERA_CUDA_ARCHITECTURES)"});
    } else if (is_cpu(gpu.facts.highest)) {
      findings.push_back(
          {fmt::format("{} has compute capability {}.{}, rows need 8.0", name,
                       gpu.facts.compute_capability / 10, gpu.facts.compute_capability % 10),
           "use another GPU; calls on this one are refused"});
    }
  }
}

json::object to_json(const examined_gpus& found) {
  json::array gpus;
  for (const examined_gpu& gpu : found.gpus) {
    gpus.push_back(json::object{
        {"device", to_json(gpu.facts)},
        {"ceilings", gpu.limits ? json::value(to_json(*gpu.limits)) : nullptr},
        {"refusal", gpu.refusal.empty() ? json::value(nullptr) : json::value(gpu.refusal)}});
  }
  return {{"driver", found.versions.driver},
          {"runtime", found.versions.runtime},
          {"gpus", std::move(gpus)}};
}

void print_gpus(const examined_gpus& found) {
  const auto& [driver, runtime] = found.versions;
  print(styled(style::bold, "CUDA") + "\n");
  print_fact("versions", runtime == 0 ? "the library was built without CUDA"
                                      : fmt::format("driver {}, runtime {}", version_text(driver),
                                                    version_text(runtime)));
  for (const examined_gpu& gpu : found.gpus) {
    print_facts(gpu.facts);
    if (gpu.limits) print_limits(*gpu.limits);
  }
}

}  // namespace tessera::tool
