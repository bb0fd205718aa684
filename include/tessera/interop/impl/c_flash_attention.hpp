// Flash attention behind the C interface.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/api/flash_attention.hpp>
#include <tessera/interop/c.h>
#include <tessera/interop/impl/c_operation.hpp>

namespace tessera::c {

using flash_tensor = tensor_pair<tessera_flash_attention_args, flash_attention_args>;

inline constexpr std::array flash_tensors{
    flash_tensor{"q", &tessera_flash_attention_args::q, &flash_attention_args::q},
    flash_tensor{"k", &tessera_flash_attention_args::k, &flash_attention_args::k},
    flash_tensor{"v", &tessera_flash_attention_args::v, &flash_attention_args::v},
    flash_tensor{"bias_pre", &tessera_flash_attention_args::bias_pre,
                 &flash_attention_args::bias_pre},
    flash_tensor{"bias_post", &tessera_flash_attention_args::bias_post,
                 &flash_attention_args::bias_post},
    flash_tensor{"mask", &tessera_flash_attention_args::mask, &flash_attention_args::mask},
    flash_tensor{"q_segment_ids", &tessera_flash_attention_args::q_segment_ids,
                 &flash_attention_args::q_segment_ids},
    flash_tensor{"kv_segment_ids", &tessera_flash_attention_args::kv_segment_ids,
                 &flash_attention_args::kv_segment_ids},
    flash_tensor{"sinks", &tessera_flash_attention_args::sinks, &flash_attention_args::sinks},
    flash_tensor{"cu_seqlens_q", &tessera_flash_attention_args::cu_seqlens_q,
                 &flash_attention_args::cu_seqlens_q},
    flash_tensor{"cu_seqlens_k", &tessera_flash_attention_args::cu_seqlens_k,
                 &flash_attention_args::cu_seqlens_k},
    flash_tensor{"seqlens_q", &tessera_flash_attention_args::seqlens_q,
                 &flash_attention_args::seqlens_q},
    flash_tensor{"seqlens_k", &tessera_flash_attention_args::seqlens_k,
                 &flash_attention_args::seqlens_k},
    flash_tensor{"out", &tessera_flash_attention_args::out, &flash_attention_args::out},
    flash_tensor{"lse", &tessera_flash_attention_args::lse, &flash_attention_args::lse},
    flash_tensor{"row_max", &tessera_flash_attention_args::row_max, &flash_attention_args::row_max},
    flash_tensor{"dropout_mask", &tessera_flash_attention_args::dropout_mask,
                 &flash_attention_args::dropout_mask},
};

inline status read_options(const tessera_flash_attention_options* given,
                           flash_attention_options& to) {
  if (given == nullptr) return {};
  tessera_flash_attention_options known;
  if (status done = read_struct(given, "options", known); !done) return done;
  constexpr std::uint32_t flags =
      TESSERA_SOFTMAX_SCALE | TESSERA_WINDOW_LEFT | TESSERA_WINDOW_RIGHT | TESSERA_LOGITS_SOFT_CAP;
  if (status done = check_flags("options: given", known.given, flags); !done) return done;
  const auto reserved = static_cast<std::uint32_t>(known.reserved);
  if (status done = check_flags("options: reserved", reserved, 0); !done) return done;
  bool top_left = false;
  bool unnormalized = false;
  if (status done = read_switch("options: causal", known.causal, to.causal); !done) return done;
  if (status done = read_switch("options: causal_alignment", known.causal_alignment, top_left);
      !done) {
    return done;
  }
  if (status done = read_switch("options: unnormalized", known.unnormalized, unnormalized); !done) {
    return done;
  }
  to.causal_alignment = top_left ? alignment::top_left : alignment::bottom_right;
  to.normalize = !unnormalized;
  const auto has = [&](std::uint32_t flag) { return (known.given & flag) != 0; };
  if (has(TESSERA_SOFTMAX_SCALE)) to.softmax_scale = known.softmax_scale;
  if (has(TESSERA_WINDOW_LEFT)) to.window_left = known.window_left;
  if (has(TESSERA_WINDOW_RIGHT)) to.window_right = known.window_right;
  if (has(TESSERA_LOGITS_SOFT_CAP)) to.logits_soft_cap = known.logits_soft_cap;
  to.dropout_probability = known.dropout_probability;
  to.dropout_seed = known.dropout_seed;
  return {};
}

}  // namespace tessera::c

extern "C" {

TESSERA_API std::int32_t tessera_flash_attention(const tessera_flash_attention_args* args,
                                                 const tessera_flash_attention_options* options,
                                                 const tessera_context* context,
                                                 tessera_status* status) {
  return tessera::c::guarded(status, [&] {
    tessera::c::call_context where;
    tessera::flash_attention_args views;
    tessera::flash_attention_options wanted;
    if (auto done = where.read(context); !done) return done;
    if (auto done = tessera::c::read_tensors(args, tessera::c::flash_tensors, views); !done)
      return done;
    if (auto done = tessera::c::read_options(options, wanted); !done) return done;
    return tessera::flash_attention(views, wanted, where.values());
  });
}

TESSERA_API std::int32_t tessera_plan_flash_attention(
    const tessera_flash_attention_args* args, const tessera_flash_attention_options* options,
    const tessera_context* context, tessera_plan** plan, tessera_status* status) {
  if (plan != nullptr) *plan = nullptr;
  return tessera::c::guarded(status, [&] {
    tessera::c::call_context where;
    tessera::flash_attention_args views;
    tessera::flash_attention_options wanted;
    if (plan == nullptr) return tessera::c::refuse("plan: is NULL");
    if (auto done = where.read(context); !done) return done;
    if (auto done = tessera::c::read_tensors(args, tessera::c::flash_tensors, views); !done)
      return done;
    if (auto done = tessera::c::read_options(options, wanted); !done) return done;
    tessera::device_id device;
    if (auto done = tessera::c::read_device(tessera::c::flash_tensors, views, device); !done) {
      return done;
    }
    return tessera::c::make_plan(tessera::problem_of(views, wanted), where, device, plan);
  });
}

TESSERA_API std::int32_t tessera_run_flash_attention(const tessera_plan* plan,
                                                     const tessera_flash_attention_args* args,
                                                     void* workspace, std::size_t workspace_bytes,
                                                     void* stream, tessera_status* status) {
  return tessera::c::guarded(status, [&] {
    tessera::flash_attention_args views;
    if (auto done = tessera::c::read_tensors(args, tessera::c::flash_tensors, views); !done) {
      return done;
    }
    return tessera::c::run_plan<tessera::flash_plan>(plan, "flash_attention", views, workspace,
                                                     workspace_bytes, stream);
  });
}
}
