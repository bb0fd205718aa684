#!/usr/bin/env python3
"""Builds random subsets of the default table's CPU rows and runs every row of each through the public call.

usage: random_subsets.py COUNT WORK_FOLDER PREFIX [SEED] [-- CMAKE_ARGUMENT...]

All subsets share one project: rows that an earlier subset compiled come from ccache, if there is
one."""
import random
import re
import sys

from consumer import ROOT, Failed, Project, script


def main():
    words, arguments = sys.argv[1:], []
    if "--" in words:
        arguments = words[words.index("--") + 1:]
        words = words[:words.index("--")]
    count, work, prefix, *rest = words
    seed = int(rest[0]) if rest else 1
    rows = re.findall(r'"(attention\.cpu_[^"]*)"', (ROOT / "generated/rows/attention.inc").read_text())
    choose = random.Random(seed)
    project = Project(work, prefix, arguments)
    project.copy("smoke.cpp")
    project.cmake_lists("tessera_add_kernels(my_kernels ROWS rows.txt)\n"
                        "add_executable(smoke smoke.cpp)\n"
                        "target_link_libraries(smoke PRIVATE my_kernels)\n")
    for number in range(1, int(count) + 1):
        subset = sorted(choose.sample(rows, choose.choice([1, 2, 3, 5, 8])))
        project.write("rows.txt", "\n".join(subset) + "\n")
        try:
            project.configure()
            project.build()
            found = project.run("smoke").split()
        except Failed as failed:
            raise Failed(f"subset {number} of seed {seed}, {subset}:\n{failed}") from None
        if found != subset:
            raise Failed(f"subset {number} of seed {seed}: has {found}, expected {subset}")
        print(f"{number}: {len(subset)} rows", flush=True)


if __name__ == "__main__":
    script(main)
