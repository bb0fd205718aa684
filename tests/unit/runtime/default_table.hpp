// The rows of the default table, those for GPUs also in builds without CUDA; not to be launched.
#pragma once

#include <string_view>
#include <vector>

#include <tessera/families/attention/config.hpp>
#include <tessera/spec/instance.hpp>

#if defined(TESSERA_CUDA)
#define TESSERA_TESTS_BUILT_WITH_CUDA
#else
#define TESSERA_CUDA
#endif
#if defined(TESSERA_CUDA_SM90)
#define TESSERA_TESTS_BUILT_WITH_SM90
#else
#define TESSERA_CUDA_SM90
#endif

namespace tessera::testing {

#define TESSERA_ATTENTION_ROW(id, name, target, type, head_dim, v_head_dim, mask, phase, features, \
                              block_q, block_kv, ...)                                              \
  {name,                                                                                           \
   {target, type, head_dim, v_head_dim, mask, phase, features, block_q, block_kv, __VA_ARGS__}},

inline const std::vector<instance>& default_table() {
  struct named_config {
    std::string_view name;
    attention_config config;
  };
  static const std::vector<named_config> table{
#include "generated/rows/attention.inc"
  };
  static const std::vector<instance> all = [] {
    std::vector<instance> rows;
    for (const auto& [name, config] : table) {
      instance row{.name = name, .family = "attention", .target = config.target, .config = &config};
      // As the registry says: how keys are split over blocks depends on how many there are.
      if (row.target == backend::cuda_sm80) row.properties.batch_invariant = batch_invariance::none;
      if (row.target == backend::cuda_sm90) {
        row.properties.batch_invariant = batch_invariance::on_request;
      }
      rows.push_back(row);
    }
    return rows;
  }();
  return all;
}

#undef TESSERA_ATTENTION_ROW

}  // namespace tessera::testing

#if !defined(TESSERA_TESTS_BUILT_WITH_CUDA)
#undef TESSERA_CUDA
#endif
#if !defined(TESSERA_TESTS_BUILT_WITH_SM90)
#undef TESSERA_CUDA_SM90
#endif
