// Quantised weights in words for the commands.
#include <tessera/families/quantized/reflect.hpp>

#include "declared_call.hpp"

namespace tessera::tool {
namespace {

boost::json::object config_of(const void* config) {
  return members_of(*static_cast<const quantized_config*>(config),
                    [](const auto&) { return boost::json::value(); });
}

}  // namespace

const family_words quantized_words{
    .name = "quantized",
    .config_of = &config_of,
    .shared_bytes = [](const void*) { return 0; },
    .remark = [](std::span<const listed_row>) { return std::string(); }};

}  // namespace tessera::tool
