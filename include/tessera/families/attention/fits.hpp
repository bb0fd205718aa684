// Which attention rows can run which problems.
#pragma once

#include <array>
#include <string>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/demand.hpp>
#include <tessera/spec/fits.hpp>
#include <tessera/spec/row_properties.hpp>

namespace tessera {

/// CUDA rows of a fixed head dim copy 16 bytes at a time; those of any take tokens at any address.
constexpr bool needs_aligned_rows(const attention_config& config) noexcept {
  return is_cuda(config.target) && config.head_dim != 0;
}

/// "bias+mask"; "nothing" for the empty set.
inline std::string list_of(attention_features features) {
  std::string list;
  for (std::size_t i = 0; i < all_attention_features.size(); ++i) {
    if (!features.has(all_attention_features[i])) continue;
    if (!list.empty()) list += '+';
    list += attention_feature_names[i];
  }
  return list.empty() ? "nothing" : list;
}

template <>
struct fits_of<attention_config> {
  using config = attention_config;
  using asked = attention_demand;
  using rule = fit_rule<config, asked>;

  static constexpr int v_head_dim_of(const config& row) noexcept {
    return row.v_head_dim != 0 ? row.v_head_dim : row.head_dim;
  }
  static constexpr std::array rules{
      same_value<&config::type, &asked::type>("dtype", 8),
      rule{.name = "head_dim",
           .distance = 4,
           .holds =
               [](const config& row, const asked& wanted) noexcept {
                 return row.head_dim == 0 || row.head_dim == wanted.sizes.head_dim;
               },
           .asked = [](const asked& wanted) noexcept -> sentence_part {
             return wanted.sizes.head_dim;
           },
           .present = [](const config& row) noexcept -> sentence_part { return row.head_dim; }},
      rule{.name = "v_head_dim",
           .distance = 3,
           .holds =
               [](const config& row, const asked& wanted) noexcept {
                 const int v_head_dim = v_head_dim_of(row);
                 return v_head_dim == 0 || v_head_dim == wanted.sizes.v_head_dim;
               },
           .asked = [](const asked& wanted) noexcept -> sentence_part {
             return wanted.sizes.v_head_dim;
           },
           .present = [](const config& row) noexcept -> sentence_part {
             return v_head_dim_of(row);
           }},
      rule{
          .name = "mask",
          .distance = 2,
          .holds = [](const config& row,
                      const asked& wanted) noexcept { return row.mask >= wanted.mask; },
          .asked = [](const asked& wanted) noexcept -> sentence_part {
            return name_of(wanted.mask);
          },
          .present = [](const config& row) noexcept -> sentence_part { return name_of(row.mask); }},
      rule{
          .name = "key storage",
          .distance = 2,
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                return are_paged(row.keys) == are_paged(wanted.keys());
              },
          .asked = [](const asked& wanted) noexcept -> sentence_part {
            return name_of(wanted.keys());
          },
          .present = [](const config& row) noexcept -> sentence_part { return name_of(row.keys); }},
      rule{.name = "pool type",
           .distance = 2,
           .holds =
               [](const config& row, const asked& wanted) noexcept {
                 if (wanted.pool_type == dtype::none) return row.keys != key_storage::coded;
                 return is_cpu(row.target) || row.head_dim == 0 || row.keys != key_storage::paged;
               },
           .obstacle =
               [](const config& row, const asked& wanted) {
                 if (row.keys == key_storage::coded) {
                   return std::string("the pool has the type of q, the row reads pools of 8 bits");
                 }
                 return "the pool holds " + std::string(name_of(wanted.pool_type)) +
                        ", the row reads pages of q's type, " + std::string(name_of(row.type));
               }},
      rule{.name = "page size",
           .holds =
               [](const config& row, const asked& wanted) noexcept {
                 return row.target != backend::cuda_sm90 || wanted.page_size % box_of_page == 0;
               },
           .obstacle =
               [](const config&, const asked& wanted) {
                 return "pages hold " + std::to_string(wanted.page_size) +
                        " tokens, the row copies " + std::to_string(box_of_page) + " at a time";
               }},
      rule{.name = "features",
           .holds =
               [](const config& row, const asked& wanted) noexcept {
                 return row.features.contains(wanted.features);
               },
           .obstacle =
               [](const config& row, const asked& wanted) {
                 return list_of(wanted.features) + " is needed, the row lacks " +
                        list_of(wanted.features.without(row.features));
               }},
      rule{.name = "alignment",
           .holds =
               [](const config& row, const asked& wanted) noexcept {
                 return wanted.aligned16 || !needs_aligned_rows(row);
               },
           .obstacle = [](const config&, const asked&) -> std::string {
             return "q, k, v: not every row starts at a multiple of 16 bytes, which the row "
                    "needs";
           }},
  };
};

/// How rows of sm80 split keys over blocks depends on how many there are, unless they lie in pages
/// and the length of a sequence alone is to decide. Rows of sm90 share out the keys of the last
/// tiles by how many there are, or do not.
constexpr row_properties properties_of(const attention_config& config) noexcept {
  if (is_cpu(config.target)) return {};
  const bool can_promise = config.target == backend::cuda_sm90 || are_paged(config.keys);
  return {.batch_invariant = can_promise ? batch_invariance::on_request : batch_invariance::none};
}

/// True for rows that take head dims as they come: the last resort of a backend.
constexpr bool is_generic(const attention_config& config) noexcept {
  return config.head_dim == 0;
}

}  // namespace tessera
