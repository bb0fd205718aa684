// Mean pooling behind the C interface.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <tessera/api/mean_pooling.hpp>
#include <tessera/interop/c.h>
#include <tessera/interop/impl/c_operation.hpp>

namespace tessera::c {

using pooling_tensor = tensor_pair<tessera_mean_pooling_args, mean_pooling_args>;

inline constexpr std::array pooling_tensors{
    pooling_tensor{"x", &tessera_mean_pooling_args::x, &mean_pooling_args::x},
    pooling_tensor{"mask", &tessera_mean_pooling_args::mask, &mean_pooling_args::mask},
    pooling_tensor{"cu_seqlens", &tessera_mean_pooling_args::cu_seqlens,
                   &mean_pooling_args::cu_seqlens},
    pooling_tensor{"out", &tessera_mean_pooling_args::out, &mean_pooling_args::out},
    pooling_tensor{"d_out", &tessera_mean_pooling_args::d_out, &mean_pooling_args::d_out},
    pooling_tensor{"d_x", &tessera_mean_pooling_args::d_x, &mean_pooling_args::d_x},
};

using pooling_function = status (*)(const mean_pooling_args&, const mean_pooling_options&,
                                    const context&);

/// In the order of mean_pooling_op, whose numbers C has too.
inline constexpr std::array<pooling_function, 4> pooling_functions{
    &mean_pooling, &mean_pooling_chunks, &mean_pooling_backward, &mean_pooling_chunks_backward};
static_assert(static_cast<int>(mean_pooling_op::mean_pooling) == TESSERA_MEAN_POOLING);
static_assert(static_cast<int>(mean_pooling_op::mean_pooling_chunks) ==
              TESSERA_MEAN_POOLING_CHUNKS);
static_assert(static_cast<int>(mean_pooling_op::mean_pooling_backward) ==
              TESSERA_MEAN_POOLING_BACKWARD);
static_assert(static_cast<int>(mean_pooling_op::mean_pooling_chunks_backward) ==
              TESSERA_MEAN_POOLING_CHUNKS_BACKWARD);

/// A call of one of the four operations.
struct pooling_call {
  mean_pooling_op op = mean_pooling_op::mean_pooling;
  mean_pooling_args args{};
  mean_pooling_options options{};
  call_context where{};

  status read(std::int32_t number, const tessera_mean_pooling_args* given,
              const tessera_mean_pooling_options* wanted, const tessera_context* context) {
    if (number < TESSERA_MEAN_POOLING || number > TESSERA_MEAN_POOLING_CHUNKS_BACKWARD) {
      return refuse("op: is " + std::to_string(number) + ", must be 0 to 3");
    }
    op = static_cast<mean_pooling_op>(number);
    if (status done = where.read(context); !done) return done;
    if (status done = read_tensors(given, pooling_tensors, args); !done) return done;
    if (wanted == nullptr) return {};
    tessera_mean_pooling_options known;
    if (status done = read_struct(wanted, "options", known); !done) return done;
    if (status done = check_flags("options: reserved", known.reserved, 0); !done) return done;
    if (known.chunk_size != 0) options.chunk_size = known.chunk_size;
    return {};
  }
};

}  // namespace tessera::c

extern "C" {

TESSERA_API std::int32_t tessera_mean_pooling(std::int32_t op,
                                              const tessera_mean_pooling_args* args,
                                              const tessera_mean_pooling_options* options,
                                              const tessera_context* context,
                                              tessera_status* status) {
  return tessera::c::guarded(status, [&] {
    tessera::c::pooling_call call;
    if (auto done = call.read(op, args, options, context); !done) return done;
    const auto function = tessera::c::pooling_functions[static_cast<std::size_t>(op)];
    return function(call.args, call.options, call.where.values());
  });
}

TESSERA_API std::int32_t tessera_plan_mean_pooling(std::int32_t op,
                                                   const tessera_mean_pooling_args* args,
                                                   const tessera_mean_pooling_options* options,
                                                   const tessera_context* context,
                                                   tessera_plan** plan, tessera_status* status) {
  if (plan != nullptr) *plan = nullptr;
  return tessera::c::guarded(status, [&] {
    tessera::c::pooling_call call;
    if (plan == nullptr) return tessera::c::refuse("plan: is NULL");
    if (auto done = call.read(op, args, options, context); !done) return done;
    tessera::device_id device;
    if (auto done = tessera::c::read_device(tessera::c::pooling_tensors, call.args, device);
        !done) {
      return done;
    }
    return tessera::c::make_plan(tessera::problem_of(call.args, call.options, call.op), call.where,
                                 device, plan);
  });
}

TESSERA_API std::int32_t tessera_run_mean_pooling(const tessera_plan* plan,
                                                  const tessera_mean_pooling_args* args,
                                                  void* workspace, std::size_t workspace_bytes,
                                                  void* stream, tessera_status* status) {
  return tessera::c::guarded(status, [&] {
    tessera::mean_pooling_args views;
    if (auto done = tessera::c::read_tensors(args, tessera::c::pooling_tensors, views); !done) {
      return done;
    }
    return tessera::c::run_plan<tessera::mean_pooling_plan>(plan, "mean_pooling", views, workspace,
                                                            workspace_bytes, stream);
  });
}
}
