// Sparse attention in words for the commands.
#include <tessera/families/sparse_attention/reflect.hpp>

#include "declared_call.hpp"

namespace tessera::tool {
namespace {

boost::json::object config_of(const void* config) {
  return members_of(*static_cast<const sparse_attention_config*>(config),
                    [](const auto&) { return boost::json::value(); });
}

}  // namespace

const family_words sparse_attention_words{
    .name = "sparse_attention",
    .config_of = &config_of,
    .shared_bytes = [](const void*) { return 0; },
    .remark = [](std::span<const listed_row>) { return std::string(); }};

}  // namespace tessera::tool
