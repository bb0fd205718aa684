// Mean pooling in words for the commands.
#include <tessera/families/mean_pooling/demand.hpp>
#include <tessera/families/mean_pooling/reflect.hpp>
#include <tessera/spec/problem.hpp>

#include "declared_call.hpp"

namespace tessera::tool {
namespace {

boost::json::object config_of(const void* config) {
  return members_of(*static_cast<const mean_pooling_config*>(config),
                    [](const auto&) { return boost::json::value(); });
}

/// An addition per element; tokens, means, weights and offsets once.
call_work work_of(const problem_view& call) {
  const auto& args = *reinterpret_cast<const mean_pooling_args*>(call.tensors);
  const auto op = static_cast<mean_pooling_op>(call.op->place);
  const tensor_view& tokens = is_backward(op) ? args.d_x : args.x;
  call_work work{.flops = static_cast<double>(tokens.elements())};
  for (const tensor_view* view :
       {&tokens, is_backward(op) ? &args.d_out : &args.out, &args.mask, &args.cu_seqlens}) {
    if (!view->present()) continue;
    work.bytes += static_cast<double>(view->elements()) * static_cast<double>(size_of(view->type));
  }
  return work;
}

}  // namespace

const family_words mean_pooling_words{
    .name = "mean_pooling",
    .config_of = &config_of,
    .shared_bytes = [](const void*) { return 0; },
    .remark = [](std::span<const listed_row>) { return std::string(); },
    .work_of = &work_of};

}  // namespace tessera::tool
