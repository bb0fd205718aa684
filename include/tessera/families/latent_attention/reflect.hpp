// Reflection over the family of latent attention, and the names of its rows.
#pragma once

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/problem.hpp>
#include <tessera/families/latent_attention/rules.hpp>
#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>

namespace tessera {

BOOST_DESCRIBE_ENUM(latent_form, expanded, absorbed, selected)

BOOST_DESCRIBE_STRUCT(latent_attention_config, (), (target, form, pass, type))

/// `latent_attention.<backend>.<form>.<pass>`, of rows of a type with `.<dtype>` behind it.
template <>
inline constexpr auto spelling_of<latent_attention_config> = row_names<latent_attention_config>(
    "latent_attention", spelling::word{&latent_attention_config::target},
    spelling::word{&latent_attention_config::form}, spelling::word{&latent_attention_config::pass},
    spelling::mark{".f16", &latent_attention_config::type, dtype::f16},
    spelling::mark{".bf16", &latent_attention_config::type, dtype::bf16});

}  // namespace tessera
