#!/usr/bin/env python3
"""tessera_add_kernels(): the rows it gives to row lists, models, traces and lookup tables, what it
refuses, and what one more row rebuilds.

usage: add_kernels.py WORK_FOLDER --prefix PREFIX | --subdirectory  [-- CMAKE_ARGUMENT...]"""
import re
import shutil
import sys

from consumer import ROOT, Failed, compiled_units, project_of, script
from lookup_lines import lookup_line

WANTED = ["attention.cpu_avx2.f32.d128.384x128", "attention.cpu_generic.f32.dany.decode.every.16x128",
          "attention.cpu_generic.f32.dany.every.128x64"]
# One that the default table does not have.
NEW = "attention.cpu_generic.bf16.d80.16x32"
MEASURED = "attention.cpu_avx512.bf16.d128.896x128"
PROGRAM = ("add_executable(smoke smoke.cpp)\n"
           "target_link_libraries(smoke PRIVATE my_kernels)\n")
IDENTITY = "type=bf16 mask=causal features=none head_dim=128 v_head_dim=128 group=4 phase=prefill"
TILE = r"\d+x\d+"
TRACE = ("# what an engine asked\n"
         "flash_attention q=[1,1,32,128]bf16 k=[1,4096,8,128] causal=true # count=812\n"
         "flash_attention q=[1,1,32,128]bf16 k=[1,3000,8,128] causal=true\n"
         "flash_attention q=[2,64,4,80]f32 k=[2,64,4,80] logits_soft_cap=30 # count=3\n")


def call(arguments):
    return f"tessera_add_kernels(my_kernels {arguments})\n" + PROGRAM


def llama(*backends):
    """Patterns of the rows that the model gets; how many tiles serve its prompts is the table's affair."""
    return [rf"attention\.{backend}\.bf16\.d128\.{loop}{TILE}" for backend in backends
            for loop in ("", r"decode\.")] + [product_row(backend) for backend in backends]


def product_row(backend):
    """Projections, feed-forward networks and head."""
    return rf"grouped_matmul\.{backend}\.{TILE}x\d+"


def rows_of(project):
    """The rows that configuring gave."""
    return [row for family in ("attention", "grouped_matmul") for row in
            re.findall(r'^\w+\(\w+, "([^"]+)"', project.found(f"{family}.inc").read_text(), re.M)]


def check_refusals(project):
    for arguments, pattern in (
            ("", "nothing says which rows; give MODELS .*TRACE .*ROWS .*LOOKUP"),
            ("BACKENDS cpu", "nothing says which rows"),
            ("ROWS", "ROWS without a value"),
            ("ROWS rows.txt BACKENDS", "BACKENDS without a value; valid back ends: cpu, cpu_generic"),
            ("rows.txt", "'rows.txt' is not an argument; valid: MODELS, ROWS, TRACE, BACKENDS, LOOKUP"),
            ("MODELS llama.json BACKENDS cuda_sm20", "'cuda_sm20' is not a backend.*valid: cpu, cpu_generic"),
            ("MODELS llama.json BACKENDS cuda_sm80", "its rows of cuda_sm80 need"),
            ("MODELS none.json", "none.json: "),
            ("MODELS wrong.json", "wrong.json: num_hidden_layers is missing"),
            ("MODELS rows.txt", "rows.txt: not JSON"),
            ("MODELS llama.json BACKENDS cpu_avx512_bf16 TRACE trace.txt",
             r"trace.txt:4: none of the backends cpu_avx512_bf16 can have a row for flash_attention .*f32"),
            ("TRACE none.txt", "none.txt: cannot read the trace"),
            ("TRACE wrong_trace.txt", "wrong_trace.txt:2: q: heads is 4, not a multiple of the 3 of k"),
            ("TRACE rows.txt", "rows.txt:2: .* starts with none of the operations flash_attention"),
            ("LOOKUP none.txt", "none.txt: cannot read the lookup table"),
            ("LOOKUP damaged.txt", "damaged.txt:1: crc32c"),
            ("ROWS none.txt", "none.txt: cannot read the row list"),
            ("ROWS rows.txt wrong.txt",
             "wrong.txt:2: 'attention.*block_kv is a positive multiple of the register tile's columns.*nearest rows"),
            ("ROWS rows.txt BACKENDS cpu_avx512", "none of the 3 rows is of the backends cpu_avx512")):
        project.refuses(call(arguments), pattern)


def check_rows(project):
    """What configuring gives, without building it: every row is asked for, every pattern is met."""
    encoder = rf"attention\.cpu_generic\.f32\.d32\.{TILE}"
    for arguments, patterns in (
            ("MODELS llama.json BACKENDS cpu_generic", llama("cpu_generic")),
            ("MODELS llama.json ./llama.json llama.json BACKENDS cpu_generic", llama("cpu_generic")),
            ("MODELS llama.json BACKENDS cpu_generic cpu_avx2", llama("cpu_generic", "cpu_avx2")),
            ("MODELS llama.json", llama("cpu_generic", "cpu_avx2", "cpu_avx512", "cpu_avx512_bf16") +
             [rf"attention\.cpu_amx_bf16\.bf16\.d128\.{loop}{TILE}" for loop in ("", r"decode\.")] +
             [product_row("cpu_amx_bf16\\.bf16")]),
            ("MODELS llama.json encoder.json BACKENDS cpu_generic", llama("cpu_generic") + [encoder]),
            ("MODELS llama.json ROWS more.txt BACKENDS cpu_generic", llama("cpu_generic") + [NEW]),
            ("TRACE trace.txt BACKENDS cpu_generic",
             [rf"attention\.cpu_generic\.bf16\.d128\.decode\.{TILE}",
              rf"attention\.cpu_generic\.f32\.d80\.soft_cap\.{TILE}"]),
            ("LOOKUP table.txt", [MEASURED]),
            ("LOOKUP table.txt MODELS llama.json BACKENDS cpu_avx512", llama("cpu_avx512") + [MEASURED]),
            ("LOOKUP table.txt MODELS encoder.json BACKENDS cpu_generic", [encoder, product_row("cpu_generic")]),
            ("ROWS rows.txt BACKENDS cpu_generic", WANTED[1:])):
        project.cmake_lists(call(arguments))
        project.configure()
        found = rows_of(project)
        strangers = [row for row in found if not any(re.fullmatch(one, row) for one in patterns)]
        missing = [one for one in patterns if not any(re.fullmatch(one, row) for row in found)]
        if strangers or missing or len(found) != len(set(found)):
            raise Failed(f"{arguments}: the rows are {found}; {strangers} are not asked for, "
                         f"{missing} is missing")
        built_in = MEASURED in project.found("lookup.cpp").read_text()
        if built_in != (MEASURED in found):
            raise Failed(f"{arguments}: the line of {MEASURED} is {'' if built_in else 'not '}built in")


def check_build(project):
    project.cmake_lists(call("ROWS rows.txt"))
    project.configure()
    project.build()
    found = project.run("smoke").split()
    if found != sorted(WANTED):
        raise Failed(f"the library has the rows {found}, expected {sorted(WANTED)}")
    project.write("rows.txt", "\n".join([*WANTED, NEW]) + "\n")
    units = compiled_units(project.build()[1])
    if len(units) != 2 or "attention_bf16_d80.cpp" not in units:
        raise Failed(f"one more row compiled {units}, expected its own unit and the registry")
    if project.run("smoke").split() != sorted([*WANTED, NEW]):
        raise Failed("the library does not have the row that was added")
    print(f"one more row compiles {len(units)} units: {', '.join(sorted(units))}")


def main():
    project = project_of(sys.argv[1:])
    project.copy("smoke.cpp")
    for model, name in (("llama-3.1-8b", "llama.json"), ("all-minilm-l6-v2", "encoder.json")):
        shutil.copy(ROOT / f"tools/models/{model}.json", project.folder / name)
    project.write("rows.txt", "# rows of a model\n" + "\n".join(WANTED) + "\n")
    project.write("more.txt", NEW + "\n")
    project.write("wrong.txt", WANTED[0] + "\nattention.cpu_generic.f32.dany.every.32x65\n")
    project.write("wrong.json", '{"model_type": "llama", "num_attention_heads": 4}\n')
    project.write("trace.txt", TRACE)
    project.write("wrong_trace.txt", "\nflash_attention q=[1,2,4,8]f32 k=[1,2,3,8]\n")
    measured = lookup_line(row=MEASURED, identity=IDENTITY)
    project.write("table.txt", measured)
    project.write("damaged.txt", measured.replace("896x128", "896x64"))
    check_refusals(project)
    check_rows(project)
    check_build(project)
    print("tessera_add_kernels builds what it is asked for and refuses the rest")


if __name__ == "__main__":
    script(main)
