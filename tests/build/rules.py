#!/usr/bin/env python3
"""Illegal rows and tables do not compile, and the compiler names the rule and the row.

usage: rules.py COMPILER [FLAG...]"""
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
        "folder": "attention", "config": "attention_config", "rule": "attention_rule",
        "launch": "attention", "arguments": "attention_kernel_args",
        "legal": ".head_dim = 64",
        "broken": {
            "type_is_floating": ".type = dtype::i32",
            "head_dim_in_range": ".head_dim = 257",
            "any_head_dim_goes_with_any_v_head_dim": ".head_dim = 0, .v_head_dim = 64",
            "block_q_is_whole_register_tiles": ".block_q = 30",
            "block_kv_is_whole_register_tiles": ".block_kv = 60",
            "tile_fits_in_cache": ".block_q = 1024, .block_kv = 2048",
            "decode_rows_fit": ".phase = attention_phase::decode, .block_q = 17",
            "bf16_dot_takes_bf16": ".target = backend::cpu_avx512_bf16, .type = dtype::f32",
            "amx_rows_are_prefill":
                ".target = backend::cpu_amx_bf16, .type = dtype::bf16, "
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
        },
        "sorted": (".head_dim = 128", ".head_dim = 64"),
    },
    {
        "folder": "mean_pooling", "config": "mean_pooling_config", "rule": "mean_pooling_rule",
        "launch": "mean_pooling", "arguments": "mean_pooling_kernel_args",
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
        "folder": "attention_backward", "config": "attention_backward_config",
        "rule": "attention_backward_rule", "launch": "attention_backward",
        "arguments": "attention_backward_kernel_args",
        "legal": ".head_dim = 64",
        "broken": {
            "type_is_floating": ".type = dtype::i32",
            "head_dim_in_range": ".head_dim = 257",
            "block_q_is_whole_tiles_and_vectors": ".block_q = 30",
            "block_kv_is_whole_register_tiles": ".block_kv = 60",
            "tile_fits_in_cache": ".block_q = 1024",
            "bf16_dot_takes_bf16": ".target = backend::cpu_avx512_bf16, .type = dtype::f32",
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
        "folder": "kv_cache", "config": "kv_cache_config", "rule": "kv_cache_rule",
        "launch": "kv_cache", "arguments": "kv_cache_kernel_args",
        "legal": ".pass = kv_cache_pass::copy",
        "broken": {"cuda_rows_are_sm80": ".target = backend::cuda_sm90"},
        "in_table": {
            "copies_are_portable": ".target = backend::cpu_avx2, .pass = kv_cache_pass::copy",
            "bf16_instructions_add_nothing": ".target = backend::cpu_avx512_bf16",
        },
        "sorted": (".pass = kv_cache_pass::append", ".pass = kv_cache_pass::copy"),
    },
    {
        "folder": "chunked_scan", "config": "chunked_scan_config", "rule": "chunked_scan_rule",
        "launch": "chunked_scan", "arguments": "chunked_scan_kernel_args",
        "legal": ".type = dtype::bf16",
        "broken": {
            "type_is_floating": ".type = dtype::i32",
            "cuda_rows_are_sm80": ".target = backend::cuda_sm90",
            "cuda_key_dim_is_known": ".target = backend::cuda_sm80, .key_dim = 96",
            "cpu_rows_take_any_key_dim": ".key_dim = 64",
            "chunks_are_products_of_bf16": ".form = chunked_scan_form::chunk",
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
        "folder": "delta_rule", "config": "delta_rule_config", "rule": "delta_rule_rule",
        "launch": "delta_rule", "arguments": "delta_rule_kernel_args",
        "legal": ".type = dtype::bf16",
        "broken": {
            "sm90_rows_have_chunks": ".target = backend::cuda_sm90",
            "cuda_rows_cut_by_key_dim": ".target = backend::cuda_sm80, .columns = 64",
            "chunks_are_products_of_bf16": ".target = backend::cuda_sm80, .chunk = 64",
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
        "folder": "selective_scan", "config": "selective_scan_config",
        "rule": "selective_scan_rule", "launch": "selective_scan",
        "arguments": "selective_scan_kernel_args",
        "legal": ".recurrence = scan_recurrence::rwkv4",
        "broken": {"cuda_rows_are_sm80": ".target = backend::cuda_sm90"},
        "in_table": {"bf16_instructions_add_nothing": ".target = backend::cpu_avx512_bf16"},
        "sorted": (".recurrence = scan_recurrence::rwkv4",
                   ".recurrence = scan_recurrence::state_space_v1"),
    },
    {
        "folder": "latent_attention", "config": "latent_attention_config",
        "rule": "latent_attention_rule", "launch": "latent_attention",
        "arguments": "latent_attention_kernel_args",
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
        "folder": "quantized", "config": "quantized_config", "rule": "quantized_rule",
        "launch": "quantized", "arguments": "quantized_kernel_args",
        "legal": ".pass = quantized_pass::dequantize",
        "broken": {
            "sm90_rows_multiply_16_bits": ".target = backend::cuda_sm90",
            "cuda_products_have_a_type":
                ".target = backend::cuda_sm80, .pass = quantized_pass::forward",
            "other_rows_take_any_type": ".type = dtype::bf16",
        },
        "in_table": {"bf16_instructions_add_nothing": ".target = backend::cpu_avx512_bf16"},
        "sorted": (".pass = quantized_pass::dequantize", ".pass = quantized_pass::quantize"),
    },
    {
        "folder": "sparse_attention", "config": "sparse_attention_config",
        "rule": "sparse_attention_rule", "launch": "sparse_attention",
        "arguments": "sparse_attention_kernel_args",
        "legal": ".pattern = sparse_pattern::blocksparse",
        "broken": {
            "sm90_rows_are_blocksparse_forward": ".target = backend::cuda_sm90",
            "cpu_rows_take_any_type": ".type = dtype::bf16",
            "matrix_unit_takes_16_bits": ".target = backend::cuda_sm80, .head_dim = 64",
            "matrix_unit_head_dim_is_64_or_128":
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
        "folder": "grouped_matmul", "config": "grouped_matmul_config",
        "rule": "grouped_matmul_rule", "launch": "grouped_matmul",
        "arguments": "grouped_matmul_kernel_args",
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
        "folder": "losses", "config": "losses_config", "rule": "losses_rule", "launch": "losses",
        "arguments": "losses_kernel_args",
        "legal": ".loss = loss_kind::kl_divergence",
        "broken": {
            "cuda_rows_are_sm80": ".target = backend::cuda_sm90",
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


def texts_of(family):
    """A launch, a table row and a table of two rows, with braces for configs."""
    row = "struct {} {{{{ static constexpr tessera::{} config{{{{{}}}}}; }}}};\n"
    kernels = "#include <tessera/kernels/{folder}/cpu/launch.hpp>\nusing namespace tessera;\n"
    table = ("#include <tessera/families/{folder}/reflect.hpp>\n"
             "#include <tessera/families/{folder}/row.hpp>\n"
             "#include <tessera/families/{folder}/rules.hpp>\n"
             "#include <tessera/spec/table.hpp>\nusing namespace tessera;\n")
    launch = (kernels + row.format("row_on_trial", family["config"], "{}") +
              "template status tessera::kernels::{launch}::cpu::launch<row_on_trial>(const {arguments}&, "
              "const launch_context&);\n")
    trial = (table + row.format("row_on_trial", family["config"], "{}") +
             "template struct tessera::table_row<row_on_trial, 0, 0>;\n")
    two = (table + row.format("first_row", family["config"], "{}") +
           row.format("second_row", family["config"], "{}") +
           "constexpr auto rows = row_table<table_row<first_row, 0, 0>, "
           "table_row<second_row, 0, 0>>::checked();\n")

    def named(text):
        for key in ("folder", "launch", "arguments"):
            text = text.replace("{" + key + "}", family[key])
        return text

    return named(launch), named(trial), named(two)


def compile_text(text, compiler, flags):
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "trial.cpp"
        source.write_text(text)
        done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", f"-I{ROOT}/include",
                               f"-I{ROOT}/generated/include", *flags,
                               *WIDEST, str(source)], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


def main():
    compiler, *flags = sys.argv[1:]
    faults = []

    def must_fail(what, text, *names):
        code, output = compile_text(text, compiler, flags)
        if code == 0:
            faults.append(f"{what}: compiles")
        for name in names:
            if code != 0 and name not in output:
                faults.append(f"{what}: the message does not name {name}:\n{output[:2000]}")

    def must_compile(what, text):
        code, output = compile_text(text, compiler, flags)
        if code != 0:
            faults.append(f"{what}: does not compile:\n{output[:2000]}")

    count = 0
    for family in FAMILIES:
        launch, table, two = texts_of(family)
        header = (ROOT / f"include/tessera/families/{family['folder']}/rules.hpp").read_text()
        rules = re.search(rf"enum class {family['rule']}[^{{]*{{([^}}]*)}}", header).group(1)
        rules = {name.strip() for name in rules.split(",") if name.strip()} - {"none"}
        count += len(rules)
        for rule in sorted(rules - family["broken"].keys() - family["in_table"].keys()):
            faults.append(f"{family['folder']}: rule {rule} has no row here that breaks it")

        must_compile("a legal row", launch.format(family["legal"]))
        for rule, config in family["broken"].items():
            must_fail(f"launch of a row against {rule}", launch.format(config), rule, "row_on_trial")
            must_fail(f"table row against {rule}", table.format(config), rule, "row_on_trial")
        for rule, config in family["in_table"].items():
            must_compile(f"launch of a row against {rule}", launch.format(config))
            must_fail(f"table row against {rule}", table.format(config), rule, "row_on_trial")
        first, second = family["sorted"]
        must_compile("a sorted table", two.format(first, second))
        must_fail("an unsorted table", two.format(second, first), "first_row", "second_row")
        must_fail("a table with a row twice", two.format(second, second), "first_row", "second_row")
    print("\n".join(faults) if faults else f"{count} rules and 2 of each table hold")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
