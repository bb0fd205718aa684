// Fused losses in words for the commands.
#include <tessera/families/losses/reflect.hpp>

#include "declared_call.hpp"

namespace tessera::tool {
namespace {

boost::json::object config_of(const void* config) {
  return members_of(*static_cast<const losses_config*>(config),
                    [](const auto&) { return boost::json::value(); });
}

}  // namespace

const family_words losses_words{
    .name = "losses",
    .config_of = &config_of,
    .shared_bytes = [](const void*) { return 0; },
    .remark = [](std::span<const listed_row>) { return std::string(); }};

}  // namespace tessera::tool
