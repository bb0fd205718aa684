// Reflection over the family of caches, and the names of its rows.
#pragma once

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/kv_cache/args.hpp>
#include <tessera/families/kv_cache/config.hpp>
#include <tessera/families/kv_cache/options.hpp>
#include <tessera/families/kv_cache/problem.hpp>
#include <tessera/families/kv_cache/rules.hpp>
#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>

namespace tessera {

BOOST_DESCRIBE_ENUM(kv_cache_pass, append, copy)
BOOST_DESCRIBE_ENUM(cache_layout, PHTD, HPTD, PTHD, PT_HD, PTCD, PTCLD)
BOOST_DESCRIBE_ENUM(kv_cache_rule, none, cuda_rows_are_sm80, copies_are_portable,
                    bf16_instructions_add_nothing)
BOOST_DESCRIBE_ENUM(kv_cache_op, kv_cache_append, kv_cache_copy)

BOOST_DESCRIBE_STRUCT(kv_cache_config, (), (target, pass))
BOOST_DESCRIBE_STRUCT(kv_cache_options, (), (k_scale, v_scale, pool_layout, page_size))
BOOST_DESCRIBE_STRUCT(kv_cache_args, (),
                      (k_new, v_new, k_pages, v_pages, kv_pages, block_table, seqlens_k,
                       cu_seqlens_q, num_seqs, k_scales, v_scales, source_pages, target_pages))

/// `kv_cache.<backend>.<pass>`.
inline constexpr auto kv_cache_names = row_names<kv_cache_config>(
    "kv_cache", spelling::word{&kv_cache_config::target}, spelling::word{&kv_cache_config::pass});

/// The stable name of a row.
constexpr row_name name_of(const kv_cache_config& config) {
  return kv_cache_names.name_of(config);
}

}  // namespace tessera
