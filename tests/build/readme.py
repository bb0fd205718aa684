#!/usr/bin/env python3
"""Extracts the complete programs of README.md, builds and runs them as a consumer would.

usage: readme.py WORK_FOLDER --prefix PREFIX | --subdirectory GENERATOR  [-- CMAKE_ARGUMENT...]

The installed library has the default table. As a subdirectory the library is built with a table of the
rows that these programs ask for: its units are compiled by the same rules as those of the default table,
which the main build compiles all.

A program is a ```cpp block whose first line is `// file: <name>.cpp (<use>)`, with a use of table,
plan (both linked with tessera::tessera) or header (linked with nothing of ours)."""
import re
import sys

from consumer import ROOT, Failed, project_of, script

LEAST = 3
PROBLEMS = ("flash_attention q=[1,64,8,64]f32 k=[1,320,2,64] causal=true window_left=255\n"
            "flash_attention q=[1,1,32,128]bf16 k=[1,512,8,128] causal=true\n")
BLOCK = re.compile(r"^```cpp\n// file: ([\w-]+)\.cpp \((table|plan|header)\)\n(.*?)^```", re.M | re.S)


def main():
    programs = BLOCK.findall((ROOT / "README.md").read_text())
    uses = {use for _, use, _ in programs}
    if len(programs) < LEAST or uses != {"table", "plan", "header"}:
        raise Failed(f"README.md has {len(programs)} complete programs for {sorted(uses)}; it needs at "
                     f"least {LEAST} and one each for header, plan and table")
    project = project_of(sys.argv[1:])
    if project.generator:
        project.take_small_table(PROBLEMS)
    text = ""
    for name, use, body in programs:
        project.write(f"{name}.cpp", body)
        text += f"add_executable({name} {name}.cpp)\n"
        if use == "header":
            text += (f"target_link_libraries({name} PRIVATE tessera::headers)\n"
                     f"target_compile_options({name} PRIVATE -O3 -march=native)\n")
        else:
            text += f"target_link_libraries({name} PRIVATE tessera::tessera)\n"
    project.cmake_lists(text)
    project.configure()
    project.build()
    for name, use, _ in programs:
        output = project.run(name)
        print(f"{name} ({use}):\n{output}")
    print(f"{len(programs)} programs of README.md run")


if __name__ == "__main__":
    script(main)
