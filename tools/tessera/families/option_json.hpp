// Options of any operation by name: from JSON, and to JSON.
#pragma once

#include <string>
#include <string_view>

#include <boost/json/value.hpp>

#include <tessera/spec/declaration.hpp>

namespace tessera::tool {

/// Sets one option by its name. Fails with `subject`, the name and the value if the name is unknown
/// or the value is of another kind.
void set_option_in(const signature& form, void* options, std::string_view name,
                   const boost::json::value& value, const std::string& subject);

/// The type that an option names for a tensor, one of the tensor's own.
dtype type_in(const tensor_form& tensor, std::string_view option, const boost::json::value& value,
              const std::string& subject);

/// The options that differ from their defaults.
boost::json::value options_json(const signature& form, const void* options);

}  // namespace tessera::tool
