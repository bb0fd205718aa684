#!/usr/bin/env python3
"""Illegal rows and tables do not compile, and the compiler names the rule and the row.

All rows that are refused stand in one unit, for what takes time is to read the headers.

usage: rules.py COMPILER"""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDEST = ["-mavx2", "-mfma", "-mf16c", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl",
          "-mavx512vnni", "-mavx512bf16", "-fopenmp"]

# The families: their headers and names, and for each rule the config of a row that breaks it and no
# rule before it; `in_table` are rules that only table rows keep. `sorted` are two configs in the
# order of their rows' names.
FAMILIES = [
    {
        "name": "attention", "has_entry_functions": True,
        "legal": ".head_dim = 64",
        "broken": {
            "type_is_floating": ".type = dtype::i32",
            "head_dim_in_range": ".head_dim = 257",
            "any_head_dim_goes_with_any_v_head_dim": ".head_dim = 0, .v_head_dim = 64",
            "block_q_is_whole_register_tiles": ".block_q = 30",
            "block_kv_is_whole_register_tiles": ".block_kv = 60",
            "tile_fits_in_cache": ".block_q = 1024, .block_kv = 2048",
            "decode_rows_fit": ".phase = attention_phase::decode, .block_q = 17",
            "bf16_instructions_take_bf16": ".target = backend::cpu_avx512_bf16, .type = dtype::f32",
            "amx_decode_has_whole_tiles":
                ".target = backend::cpu_amx_bf16, .type = dtype::bf16, .head_dim = 40, "
                ".phase = attention_phase::decode",
            "has_base_features": ".features = {}",
            "decode_has_no_weights": ".phase = attention_phase::decode, .features = every_feature",
            "paged_keys_have_no_weights":
                ".keys = key_storage::paged, .features = base_features | attention_feature::weights",
            "cpu_has_no_tiling": ".tiling = {.warps = 4}",
            "cuda_warps_in_range": ".target = backend::cuda_sm80, .tiling = {.warps = 17}",
            "cuda_blocks_per_sm_in_range":
                ".target = backend::cuda_sm80, .tiling = {.blocks_per_sm = 17}",
            "cuda_block_q_is_whole_warp_tiles": ".target = backend::cuda_sm80, .block_q = 48",
            "cuda_block_kv_is_whole_key_groups": ".target = backend::cuda_sm80, .block_kv = 24",
            "cuda_head_dims_are_whole_chunks":
                ".target = backend::cuda_sm80, .type = dtype::bf16, .head_dim = 60",
            "cuda_tile_fits_in_shared_memory": ".target = backend::cuda_sm80, .block_kv = 256",
            "coded_keys_are_read_in_lines": ".keys = key_storage::coded",
            "sm90_takes_16_bit_prompts": ".target = backend::cuda_sm90, .head_dim = 64",
            "sm90_head_dims_are_tuned":
                ".target = backend::cuda_sm90, .type = dtype::bf16, .head_dim = 160",
            "sm90_warps_are_whole_warpgroups":
                ".target = backend::cuda_sm90, .type = dtype::bf16, .head_dim = 64, .block_q = 64",
            "sm90_four_warpgroups_are_plain":
                ".target = backend::cuda_sm90, .type = dtype::bf16, .head_dim = 64, "
                ".features = base_features | attention_feature::mask, .block_q = 256, "
                ".block_kv = 64",
            "sm90_head_dims_of_codes":
                ".target = backend::cuda_sm90, .type = dtype::f8_e4m3, .head_dim = 96",
            "sm90_block_kv_of_codes":
                ".target = backend::cuda_sm90, .type = dtype::f8_e4m3, .head_dim = 128, "
                ".block_kv = 80",
            "sm90_codes_are_plain":
                ".target = backend::cuda_sm90, .type = dtype::f8_e4m3, .head_dim = 128, "
                ".features = base_features | attention_feature::soft_cap",
            "sm90_block_kv_fits_in_registers":
                ".target = backend::cuda_sm90, .type = dtype::bf16, .head_dim = 128, .block_kv = 96",
            "sm90_pages_are_plain":
                ".target = backend::cuda_sm90, .type = dtype::bf16, .head_dim = 64, "
                ".keys = key_storage::paged, .features = base_features | attention_feature::mask",
            "sm90_writes_no_weights":
                ".target = backend::cuda_sm90, .type = dtype::bf16, .head_dim = 64, "
                ".features = base_features | attention_feature::weights",
            "sm90_masks_are_read_in_words":
                ".target = backend::cuda_sm90, .type = dtype::bf16, .head_dim = 64, "
                ".features = base_features | attention_feature::mask, .block_kv = 96",
            "sm90_tile_fits_in_shared_memory":
                ".target = backend::cuda_sm90, .type = dtype::bf16, .head_dim = 256, "
                ".v_head_dim = 192, .block_kv = 128",
        },
        "in_table": {
            "table_rows_take_every_mask": ".mask = mask_mode::causal",
            "byte_products_add_nothing": ".target = backend::cpu_avx512_vnni",
        },
        "sorted": (".head_dim = 128", ".head_dim = 64"),
    },
    {
        "name": "mean_pooling",
        "legal": ".type = dtype::bf16",
        "broken": {
            "type_is_floating": ".type = dtype::i32",
            "streams_is_a_small_power_of_two": ".streams = 3",
            "cuda_streams_fit_in_registers": ".target = backend::cuda_sm80, .streams = 16",
            "cuda_rows_are_sm80": ".target = backend::cuda_sm90, .type = dtype::bf16",
            "forward_stores_are_cached": ".stores = pooling_stores::streaming",
            "backward_has_no_streams": ".pass = pooling_pass::backward, .streams = 4",
            "generic_stores_are_cached":
                ".pass = pooling_pass::backward, .stores = pooling_stores::streaming",
            "bf16_instructions_take_bf16": ".target = backend::cpu_avx512_bf16",
        },
        "in_table": {"bf16_instructions_add_nothing":
                     ".target = backend::cpu_avx512_bf16, .type = dtype::bf16"},
        "sorted": (".type = dtype::bf16", ".type = dtype::f16"),
    },
    {
        "name": "attention_backward", "has_entry_functions": True,
        "legal": ".head_dim = 64",
        "broken": {
            "type_is_floating": ".type = dtype::i32",
            "head_dim_in_range": ".head_dim = 257",
            "block_q_is_whole_tiles_and_vectors": ".block_q = 30",
            "block_kv_is_whole_register_tiles": ".block_kv = 60",
            "tile_fits_in_cache": ".block_q = 1024",
            "bf16_instructions_take_bf16": ".target = backend::cpu_avx512_bf16, .type = dtype::f32",
            "v_head_dim_is_that_of_q": ".head_dim = 64, .v_head_dim = 32",
            "only_cuda_rows_of_one_head_dim_add_up": ".head_dim = 64, .d_q_atomics = true",
            "cuda_head_dims_are_known":
                ".target = backend::cuda_sm80, .type = dtype::bf16, .head_dim = 80",
            "cuda_type_of_head_dim_has_16_bits": ".target = backend::cuda_sm80, .head_dim = 64",
            "cuda_blocks_are_fixed": ".target = backend::cuda_sm80, .block_q = 48",
            "sm90_rows_add_up": ".target = backend::cuda_sm90",
            "turns_are_those_of_sums": ".in_turns = true",
        },
        "in_table": {},
        "sorted": (".head_dim = 128", ".head_dim = 64"),
    },
    {
        "name": "kv_cache",
        "legal": ".pass = kv_cache_pass::copy",
        "broken": {"cuda_rows_are_sm80": ".target = backend::cuda_sm90"},
        "in_table": {
            "copies_are_portable": ".target = backend::cpu_avx2, .pass = kv_cache_pass::copy",
            "bf16_instructions_add_nothing": ".target = backend::cpu_avx512_bf16",
        },
        "sorted": (".pass = kv_cache_pass::append", ".pass = kv_cache_pass::copy"),
    },
    {
        "name": "chunked_scan",
        "legal": ".type = dtype::bf16",
        "broken": {
            "type_is_floating": ".type = dtype::i32",
            "sm90_rows_are_chunks_of_bf16": ".target = backend::cuda_sm90",
            "cuda_key_dim_is_known": ".target = backend::cuda_sm80, .key_dim = 96",
            "cpu_rows_take_any_key_dim": ".key_dim = 64",
            "chunks_are_products_of_16_bits": ".form = chunked_scan_form::chunk",
            "chunks_have_short_keys":
                ".target = backend::cuda_sm80, .type = dtype::bf16, "
                ".form = chunked_scan_form::chunk, .key_dim = 256",
            "bf16_instructions_take_bf16": ".target = backend::cpu_avx512_bf16",
        },
        "in_table": {"bf16_instructions_add_nothing":
                     ".target = backend::cpu_avx512_bf16, .type = dtype::bf16"},
        "sorted": (".type = dtype::bf16", ".type = dtype::f16"),
    },
    {
        "name": "delta_rule",
        "legal": ".type = dtype::bf16",
        "broken": {
            "sm90_rows_have_chunks": ".target = backend::cuda_sm90",
            "cuda_rows_cut_by_key_dim": ".target = backend::cuda_sm80, .columns = 64",
            "chunks_are_products_of_bf16": ".target = backend::cuda_sm80, .chunk = 64, .key_dim = 256",
            "cuda_key_dim_is_known": ".target = backend::cuda_sm80, .key_dim = 96",
            "cpu_rows_take_any_key_dim": ".key_dim = 64",
            "type_is_floating": ".type = dtype::i32",
            "forward_goes_token_by_token": ".chunk = 64",
            "chunk_in_range": ".pass = delta_rule_pass::backward, .chunk = 257",
            "columns_are_a_few_vectors": ".columns = 20",
            "bf16_instructions_take_bf16": ".target = backend::cpu_avx512_bf16",
        },
        "in_table": {"bf16_instructions_add_nothing":
                     ".target = backend::cpu_avx512_bf16, .type = dtype::bf16"},
        "sorted": (".type = dtype::bf16", ".type = dtype::f16"),
    },
    {
        "name": "selective_scan",
        "legal": ".recurrence = scan_recurrence::rwkv4",
        "broken": {"cuda_rows_are_sm80": ".target = backend::cuda_sm90"},
        "in_table": {"bf16_instructions_add_nothing": ".target = backend::cpu_avx512_bf16"},
        "sorted": (".recurrence = scan_recurrence::rwkv4",
                   ".recurrence = scan_recurrence::state_space_v1"),
    },
    {
        "name": "latent_attention",
        "legal": ".form = latent_form::absorbed",
        "broken": {
            "sm90_rows_are_of_wgmma": ".target = backend::cuda_sm90",
            "type_is_of_matrix_units": ".type = dtype::bf16",
            "gradients_are_of_expanded_latents":
                ".form = latent_form::absorbed, .pass = latent_pass::backward",
        },
        "in_table": {"bf16_instructions_add_nothing": ".target = backend::cpu_avx512_bf16"},
        "sorted": (".form = latent_form::absorbed", ".form = latent_form::expanded"),
    },
    {
        "name": "quantized",
        "legal": ".pass = quantized_pass::dequantize",
        "broken": {
            "sm90_rows_multiply_16_bits": ".target = backend::cuda_sm90",
            "cuda_products_have_a_type":
                ".target = backend::cuda_sm80, .pass = quantized_pass::forward",
            "other_rows_take_any_type": ".type = dtype::bf16",
            "tiles_multiply_forward": ".target = backend::cpu_amx_bf16",
        },
        "in_table": {"bf16_rows_multiply_forward": ".target = backend::cpu_avx512_bf16"},
        "sorted": (".pass = quantized_pass::dequantize", ".pass = quantized_pass::quantize"),
    },
    {
        "name": "sparse_attention",
        "legal": ".pattern = sparse_pattern::blocksparse",
        "broken": {
            "sm90_rows_are_forward_of_16_bits": ".target = backend::cuda_sm90",
            "cpu_rows_of_a_type_are_forward":
                ".pass = sparse_pass::backward, .type = dtype::f32, .head_dim = 64",
            "cpu_types_have_products": ".type = dtype::i32, .head_dim = 64",
            "matrix_unit_takes_16_bits": ".target = backend::cuda_sm80, .head_dim = 64",
            "head_dim_of_a_type_is_64_or_128":
                ".target = backend::cuda_sm80, .type = dtype::bf16, .head_dim = 96",
            "matrix_unit_goes_backward_over_blocks":
                ".target = backend::cuda_sm80, .pattern = sparse_pattern::native_sparse, "
                ".pass = sparse_pass::backward, .type = dtype::bf16, .head_dim = 64",
        },
        "in_table": {"bf16_instructions_add_nothing": ".target = backend::cpu_avx512_bf16"},
        "sorted": (".pattern = sparse_pattern::blocksparse",
                   ".pattern = sparse_pattern::native_sparse"),
    },
    {
        "name": "grouped_matmul",
        "legal": ".block_m = 32",
        "broken": {
            "cuda_type_is_multiplied": ".target = backend::cuda_sm80, .type = dtype::i32",
            "sm90_type_has_few_bits": ".target = backend::cuda_sm90, .type = dtype::f32",
            "cuda_tile_is_known":
                ".target = backend::cuda_sm80, .type = dtype::bf16, .block_m = 96",
            "cpu_rows_take_any_type": ".type = dtype::bf16",
            "block_m_is_whole_register_tiles": ".block_m = 5",
            "block_n_is_whole_register_tiles": ".block_n = 9",
            "block_k_is_whole_vectors": ".block_k = 48",
            "bytes_share_scales": ".target = backend::cpu_avx512_vnni, .block_k = 96",
            "tile_is_small": ".block_k = 8192",
        },
        "in_table": {},
        "sorted": (".block_m = 32", ".block_m = 64"),
    },
    {
        "name": "losses",
        "legal": ".loss = loss_kind::kl_divergence",
        "broken": {
            "sm90_rows_are_products_of_bf16": ".target = backend::cuda_sm90",
            "cuda_products_have_a_type":
                ".target = backend::cuda_sm80, .loss = loss_kind::linear_cross_entropy",
            "cuda_gradients_are_not_f16":
                ".target = backend::cuda_sm80, .loss = loss_kind::linear_cross_entropy, "
                ".pass = loss_pass::backward, .type = dtype::f16",
            "other_rows_take_any_type": ".type = dtype::bf16",
        },
        "in_table": {"bf16_instructions_add_nothing": ".target = backend::cpu_avx512_bf16"},
        "sorted": (".loss = loss_kind::cross_entropy", ".loss = loss_kind::kl_divergence"),
    },
]


ROW = "struct {} {{ static constexpr tessera::{} config{{{}}}; }};\n"
TABLE = ("constexpr auto {} = tessera::row_table<tessera::table_row<{}, 0, 0>, "
         "tessera::table_row<{}, 0, 0>>::checked();\n")


def row_against(rule, family):
    """The name of the row that breaks a rule."""
    return f"{family['name']}_against_{rule}"


def launch_of(row, family):
    """A launch of the row, instantiated."""
    room = f"tessera::kernels::{family['name']}::cpu"
    if "has_entry_functions" in family:
        return (f"template tessera::status {room}::launch<{row}>("
                f"const tessera::{family['name']}_kernel_args&, const tessera::launch_context&);\n")
    return f"template struct tessera::kernels::cpu_entry_points<{room}::launcher<{row}>>;\n"


def in_table(row):
    return f"template struct tessera::table_row<{row}, 0, 0>;\n"


def texts_of(family):
    """What a family has in the unit of legal rows, launched and in a table, and in that of everything
    that is refused. Each row has a name of its own, so that each refusal is told from the others."""
    start = "".join(f"#include <tessera/{header}>\n" for header in (
        f"kernels/{family['name']}/cpu/launch.hpp", f"families/{family['name']}/reflect.hpp",
        f"families/{family['name']}/row.hpp", f"families/{family['name']}/rules.hpp",
        "spec/table.hpp")) + "using namespace tessera;\n"

    def row(name, config):
        return ROW.format(name, f"{family['name']}_config", config)

    def table(name, first, second):
        return TABLE.format(f"{family['name']}_{name}", *(f"{family['name']}_{one}" for one in (first, second)))

    def rows(names, configs):
        return "".join(row(f"{family['name']}_{name}", config) for name, config in zip(names, configs))

    legal_row = f"{family['name']}_legal_row"
    launched_only = "".join(row(name, config) + launch_of(name, family) for name, config in
                            ((row_against(rule, family), config) for rule, config in family["in_table"].items()))
    legal = (start + row(legal_row, family["legal"]) + launch_of(legal_row, family) + launched_only +
             rows(("first_row", "second_row"), family["sorted"]) +
             table("sorted_table", "first_row", "second_row"))
    illegal = start
    for rule, config in (family["broken"] | family["in_table"]).items():
        name = row_against(rule, family)
        illegal += row(name, config) + in_table(name)
        if rule in family["broken"]:
            illegal += launch_of(name, family)
    twin = family["sorted"][1]
    illegal += (rows(("early_row", "late_row"), family["sorted"]) +
                table("unsorted_table", "late_row", "early_row") +
                rows(("twin_row", "other_twin_row"), (twin, twin)) +
                table("table_of_twins", "twin_row", "other_twin_row"))
    return legal, illegal


def refusals_in(output, template):
    """(row, rule) of each instantiation of the template that the messages name."""
    return set(re.findall(rf"\b{template}<(\w+), \(?& ?[\w:]*?(\w+)\)?>", output))


def compile_text(text, compiler):
    """Whether a unit compiles, and all that the compiler says of it."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    every_error = "-ferror-limit=0" if "clang" in version.stdout else "-fmax-errors=0"
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "trial.cpp"
        source.write_text(text)
        done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", every_error, f"-I{ROOT}/include",
                               f"-I{ROOT}/generated/include", *WIDEST, str(source)],
                              capture_output=True, text=True)
        return done.returncode == 0, done.stdout + done.stderr


def rules_in(family):
    """The rules of a family: name -> sentence. Those that several families have are named by a using-declaration."""
    header = (ROOT / f"include/tessera/families/{family['name']}/rules.hpp").read_text()
    shared = {}
    for path in ("spec/shared_rules.hpp", "families/recurrent_keys.hpp"):
        shared |= sentences_in((ROOT / "include/tessera" / path).read_text())
    used = re.findall(r"^using (?:shared_rules|recurrent_key_rules)::(\w+);", header, re.M)
    return sentences_in(header) | {name: shared[name] for name in used}


def sentences_in(header):
    """The rules that a text defines: name -> sentence."""
    return {name: "".join(re.findall(r'"([^"]*)"', sentence)) for name, sentence in
            re.findall(r"^inline constexpr row_rule (\w+){([^}]*)};", header, re.M)}


def faults_of(family, output):
    """Rules of a family of which the compiler says nothing about the unit of what is refused."""
    rules, tried = rules_in(family), family["broken"].keys() | family["in_table"].keys()
    faults = [f"rule {rule} has no row here that breaks it" for rule in sorted(rules.keys() - tried)]
    if len(set(rules.values())) != len(rules):
        faults.append("two rules have the same sentence")
    in_launch, of_table = (refusals_in(output, template) for template in ("row_is_legal", "legal_table_row"))
    for rule in tried:
        refused = (row_against(rule, family), rule)
        if rule in family["broken"] and refused not in in_launch:
            faults.append(f"launch of a row against {rule}: no message names rule and row")
        if refused not in of_table:
            faults.append(f"table row against {rule}: no message names rule and row")
    for what, first, second in (("an unsorted table", "late_row", "early_row"),
                                ("a table with a row twice", "twin_row", "other_twin_row")):
        if not re.search(rf"\b{family['name']}_{first}, {family['name']}_{second}>", output):
            faults.append(f"{what}: no message names both rows")
    return [f"{family['name']}: {fault}" for fault in faults]


def main():
    compiler, = sys.argv[1:]
    legal, illegal = map("".join, zip(*map(texts_of, FAMILIES)))
    compiles, output = compile_text(legal, compiler)
    faults = [] if compiles else [f"legal rows do not compile:\n{output[:4000]}"]
    compiles, output = compile_text(illegal, compiler)
    if compiles:
        faults.append("illegal rows compile")
    faults += [fault for family in FAMILIES for fault in faults_of(family, output)]
    count = sum(len(rules_in(family)) for family in FAMILIES)
    print("\n".join(faults) if faults else f"{count} rules and 2 of each table hold")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
