// Rules that rows of several families must meet.
#pragma once

#include <tessera/spec/row_rule.hpp>

namespace tessera::shared_rules {

inline constexpr row_rule type_is_floating{"type is f32, f16 or bf16"};
inline constexpr row_rule bf16_instructions_take_bf16{
    "cpu_avx512_bf16 and cpu_amx_bf16 rows have type bf16"};

}  // namespace tessera::shared_rules
