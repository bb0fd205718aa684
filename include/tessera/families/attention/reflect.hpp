// Reflection over the flash attention family, and the names of its rows.
#pragma once

#include <string_view>

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/problem.hpp>
#include <tessera/families/attention/rules.hpp>
#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>
#include <tessera/spec/words.hpp>

namespace tessera {

BOOST_DESCRIBE_ENUM(mask_mode, full, causal, window)
BOOST_DESCRIBE_ENUM(attention_phase, prefill, decode)
BOOST_DESCRIBE_ENUM(key_storage, contiguous, paged, coded)
BOOST_DESCRIBE_ENUM(attention_feature, varlen, lengths, sinks, unnormalized, soft_cap, bias, mask,
                    segments, dropout, weights)

BOOST_DESCRIBE_STRUCT(attention_features, (), (bits))
BOOST_DESCRIBE_STRUCT(cuda_tiling, (), (warps, blocks_per_sm, q_in_registers))
BOOST_DESCRIBE_STRUCT(attention_config, (),
                      (target, type, head_dim, v_head_dim, mask, phase, keys, features, block_q,
                       block_kv, tiling))

/// Every feature that a row of the phase may have: what `every` means in its name.
constexpr attention_features every_feature_of(attention_phase phase) noexcept {
  if (phase == attention_phase::prefill) return every_feature;
  return every_feature.without({static_cast<std::uint16_t>(attention_feature::weights)});
}

/// ".soft_cap+mask": the features beyond `base_features`; ".every" for all of the phase; nothing
/// for none. The tile behind them begins with a digit.
struct spelled_features {
  constexpr void write(row_name& name, const attention_config& row) const {
    if (row.features == every_feature_of(row.phase)) {
      name += ".every";
      return;
    }
    char separator = '.';
    for (const attention_feature feature : all_attention_features) {
      if (!row.features.without(base_features).has(feature)) continue;
      (name += separator) += enumerator_name(feature);
      separator = '+';
    }
  }
  bool read(std::string_view& rest, attention_config& row) const {
    if (rest.size() > 1 && rest[1] >= '0' && rest[1] <= '9') return true;
    std::string_view list = spelling::next_word(rest);
    if (list == "every") {
      row.features = every_feature_of(row.phase);
      return true;
    }
    while (!list.empty()) {
      const auto feature = enumerator_named<attention_feature>(text::split_off(list, '+'));
      if (!feature) return false;
      row.features = row.features | *feature;
    }
    return true;
  }
};

/// "v64": the head dim of v where it is another one.
struct spelled_v_head_dim {
  static constexpr spelling::number number{"v", &attention_config::v_head_dim};

  constexpr void write(row_name& name, const attention_config& row) const {
    if (row.v_head_dim != row.head_dim) number.write(name, row);
  }
  constexpr bool read(std::string_view& rest, attention_config& row) const {
    row.v_head_dim = row.head_dim;
    return !rest.starts_with('v') || number.read(rest, row);
  }
};

/// `attention.<backend>.<dtype>.d<D>[v<Dv>][.decode][.paged|.coded][.<features>]`,
/// `.<block_q>x<block_kv>` and for CUDA `.w<warps>b<blocks_per_sm>[r]` behind it, r: Q in
/// registers. `dany` stands for head dims known at run time. The mask is not part of it: rows of
/// the table take every mask. Two legal table rows have the same name only if they are the same
/// row.
template <>
inline constexpr auto spelling_of<attention_config> = row_names<attention_config>(
    "attention", spelling::word{&attention_config::target}, spelling::word{&attention_config::type},
    spelling::number{".d", &attention_config::head_dim, "any"}, spelled_v_head_dim{},
    spelling::mark{".decode", &attention_config::phase, attention_phase::decode},
    spelling::mark{".paged", &attention_config::keys, key_storage::paged},
    spelling::mark{".coded", &attention_config::keys, key_storage::coded}, spelled_features{},
    spelling::number{".", &attention_config::block_q},
    spelling::number{"x", &attention_config::block_kv},
    spelling::where{
        [](const attention_config& row) { return is_cuda(row.target); },
        spelling::number{".w", spelling::within{&attention_config::tiling, &cuda_tiling::warps}},
        spelling::number{"b",
                         spelling::within{&attention_config::tiling, &cuda_tiling::blocks_per_sm}},
        spelling::mark{
            "r", spelling::within{&attention_config::tiling, &cuda_tiling::q_in_registers}, true}});

}  // namespace tessera
