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
          "-mavx512bf16", "-fopenmp"]

# For each rule the config of a row that breaks it and no rule before it.
BROKEN = {
    "type_is_floating": ".type = dtype::i32",
    "head_dim_in_range": ".head_dim = 257",
    "any_head_dim_goes_with_any_v_head_dim": ".head_dim = 0, .v_head_dim = 64",
    "block_q_is_whole_register_tiles": ".block_q = 30",
    "block_kv_is_whole_register_tiles": ".block_kv = 60",
    "tile_fits_in_cache": ".block_q = 1024, .block_kv = 1024",
    "decode_rows_fit": ".phase = flash_phase::decode, .block_q = 17",
    "bf16_dot_takes_bf16": ".target = backend::cpu_avx512_bf16, .type = dtype::f32",
    "cpu_has_base_features": ".features = {}",
    "decode_has_no_weights": ".phase = flash_phase::decode, .features = every_feature",
}
# Rules that only table rows keep.
BROKEN_IN_TABLE = {"cpu_uses_window_mask": ".mask = mask_mode::causal"}

ROW = "struct row_on_trial {{ static constexpr tessera::flash_config config{{{}}}; }};\n"
LAUNCH = ("#include <tessera/kernels/flash_attention/launch.hpp>\nusing namespace tessera;\n" + ROW +
          "template status tessera::flash::launch<row_on_trial>(const flash_kernel_args&, "
          "const launch_context&);\n")
TABLE = ("#include <tessera/spec/flash_attention/table.hpp>\nusing namespace tessera;\n" + ROW +
         "template struct tessera::table_row<row_on_trial, 0, 0>;\n")
TWO_ROWS = ("#include <tessera/spec/flash_attention/table.hpp>\nusing namespace tessera;\n"
            "struct first_row {{ static constexpr flash_config config{{.head_dim = {}}}; }};\n"
            "struct second_row {{ static constexpr flash_config config{{.head_dim = {}}}; }};\n"
            "constexpr auto rows = flash_table<table_row<first_row, 0, 0>, "
            "table_row<second_row, 0, 0>>::checked();\n")


def compile_text(text, compiler, flags):
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "trial.cpp"
        source.write_text(text)
        done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", f"-I{ROOT}/include", *flags,
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

    header = (ROOT / "include/tessera/spec/flash_attention/rules.hpp").read_text()
    rules = re.search(r"enum class flash_rule[^{]*{([^}]*)}", header).group(1)
    rules = {name.strip() for name in rules.split(",") if name.strip()} - {"none"}
    for rule in sorted(rules - BROKEN.keys() - BROKEN_IN_TABLE.keys()):
        faults.append(f"rule {rule} has no row here that breaks it")

    must_compile("a legal row", LAUNCH.format(".head_dim = 64"))
    for rule, config in BROKEN.items():
        must_fail(f"launch of a row against {rule}", LAUNCH.format(config), rule, "row_on_trial")
        must_fail(f"table row against {rule}", TABLE.format(config), rule, "row_on_trial")
    for rule, config in BROKEN_IN_TABLE.items():
        must_compile(f"launch of a row against {rule}", LAUNCH.format(config))
        must_fail(f"table row against {rule}", TABLE.format(config), rule, "row_on_trial")
    must_compile("a sorted table", TWO_ROWS.format(128, 64))
    must_fail("an unsorted table", TWO_ROWS.format(64, 128), "first_row", "second_row")
    must_fail("a table with a row twice", TWO_ROWS.format(64, 64), "first_row", "second_row")
    print("\n".join(faults) if faults else f"{len(rules)} rules and 2 of the table hold")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
