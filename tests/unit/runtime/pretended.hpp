// A registry and devices that are not there: choices can be tested as data on any machine.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/families/attention/family.hpp>
#include <tessera/families/attention/operations.hpp>
#include <tessera/families/attention/reflect.hpp>
#include <tessera/families/attention/registry.hpp>
#include <tessera/families/attention/rules.hpp>
#include <tessera/runtime/impl/select.hpp>
#include <tessera/spec/problem_text.hpp>

#include "tests/support/gpu_facts.hpp"

namespace tessera::testing {

/// Rows for common head dims with base features and rows that take everything, for every backend
/// and type; their launchers must not be called.
class pretended_rows {
 public:
  pretended_rows() {
    for (const backend target : all_backends) {
      for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
        for (const attention_phase phase : {attention_phase::prefill, attention_phase::decode}) {
          add({.target = target,
               .type = type,
               .phase = phase,
               .features = every_feature_of(phase)});
          if (target == backend::cpu_generic) continue;
          for (const int dim : {64, 128}) {
            add({.target = target, .type = type, .head_dim = dim, .phase = phase});
          }
        }
      }
    }
    add({.target = backend::cpu_avx512,
         .head_dim = 128,
         .features = base_features | attention_feature::soft_cap});
    for (std::size_t i = 0; i < configs_.size(); ++i) {
      rows_.push_back({.name = names_[i],
                       .family = attention_family::name,
                       .target = configs_[i].target,
                       .config = &configs_[i]});
    }
    std::sort(rows_.begin(), rows_.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
  }

  const std::vector<instance>& all() const { return rows_; }

 private:
  void add(attention_config config) {
    if (!is_legal_in_table(config)) return;
    configs_.push_back(resolved(config));
    names_.emplace_back(name_of(config).view());
  }

  std::vector<attention_config> configs_;
  std::vector<std::string> names_;
  std::vector<instance> rows_;
};

inline const std::vector<instance>& rows() {
  static const pretended_rows all;
  return all.all();
}

inline device_facts device_with(backend highest, int threads = 8) {
  if (is_cuda(highest)) {
    device_facts gpu = support::h200();
    gpu.highest = highest;
    return gpu;
  }
  device_facts device;
  device.highest = highest;
  device.physical_cores = device.hardware_threads = device.available_threads = threads;
  return device;
}

/// The key of an attention demand.
inline key_text attention_key_text(const attention_demand& of, int threads, device_kind device,
                                   bits_promise promise = bits_promise::none) {
  return key_text_of(attention_record, demand(of), threads, device, promise);
}

/// A small prompt, its row among the pretended ones and that of AVX2.
constexpr std::string_view small_prompt = "flash_attention q=[1,64,8,64]f32 k=[1,64,8,64]";
constexpr std::string_view small_prompt_avx512 = "attention.cpu_avx512.f32.d64.896x256";
constexpr std::string_view small_prompt_avx2 = "attention.cpu_avx2.f32.d64.384x256";

/// A question about a problem in text form, on a pretended device.
struct question {
  explicit question(std::string_view text, backend highest = backend::cpu_avx512_bf16,
                    int workers = 8)
      : problem(*parse_problem<flash_problem>(text)),
        device(device_with(highest, workers)),
        threads(workers) {}
  question(const question&) = delete;  // `view` is of its own problem
  question& operator=(const question&) = delete;

  inquiry asked() const {
    return {.kind = attention_record,
            .problem = view,
            .demand = demand_for(attention_record, view, policy),
            .instances = rows(),
            .device = device,
            .threads = threads,
            .policy = policy,
            .row_of_call = row_of_call,
            .row_of_environment = row_of_environment,
            .overlays = overlays,
            .tables = tables,
            .own_rows = own_rows,
            .tuner = tuner,
            .memory = memory,
            .process_memory = process_memory,
            .generation = selection_generation()};
  }
  auto answer() const { return select(asked()); }
  std::string_view row() const {
    const auto chosen = answer();
    return chosen ? chosen->row() : std::string_view("none");
  }

  flash_problem problem;
  problem_view view = view_of(problem);
  device_facts device;
  int threads;
  selection_policy policy{};
  std::string_view row_of_call{}, row_of_environment{};
  overlays_in_force overlays{};
  const lookup_tables* tables = nullptr;
  const application_rows* own_rows = nullptr;
  const autotuner* tuner = nullptr;
  selection_memory* memory = nullptr;
  shared_memory* process_memory = nullptr;
};

}  // namespace tessera::testing
