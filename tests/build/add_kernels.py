#!/usr/bin/env python3
"""tessera_add_kernels() as a consumer uses it, and what it refuses.

usage: add_kernels.py WORK_FOLDER --prefix PREFIX | --subdirectory  [-- CMAKE_ARGUMENT...]"""
import re
import shutil
import sys

from consumer import ROOT, Failed, Project

WANTED = ["flash_fwd.cpu_avx2.f32.d128.window.48x128", "flash_fwd.cpu_generic.f32.dany.decode.every.16x64",
          "flash_fwd.cpu_generic.f32.dany.window.every.32x64"]
# One that the default table does not have.
NEW = "flash_fwd.cpu_generic.bf16.d80.window.16x32"
PROGRAM = ("add_executable(smoke smoke.cpp)\n"
           "target_link_libraries(smoke PRIVATE my_kernels)\n")


def main():
    work, how, *rest = sys.argv[1:]
    prefix = rest.pop(0) if how == "--prefix" else None
    project = Project(work, prefix, [argument for argument in rest if argument != "--"])
    shutil.copy(ROOT / "tests/build/smoke.cpp", project.folder)
    project.write("rows.txt", "# rows of a model\n" + "\n".join(WANTED) + "\n")
    project.write("more.txt", NEW + "\n")
    project.write("wrong.txt", WANTED[0] + "\nflash_fwd.cpu_generic.f32.dany.window.every.32x65\n")
    project.write("config.json", "{}\n")

    def gives(call, rows):
        project.cmake_lists(f"tessera_add_kernels(my_kernels {call})\n" + PROGRAM)
        project.configure()
        project.build()
        found = project.run("smoke").split()
        if found != sorted(rows):
            raise Failed(f"{call}: the library has the rows {found}, expected {sorted(rows)}")

    def refuses(call, pattern):
        project.cmake_lists(f"tessera_add_kernels(my_kernels {call})\n" + PROGRAM)
        status, output = project.configure(check=False)
        # CMake folds messages; white space is free.
        if status == 0 or not re.search(pattern, " ".join(output.split())):
            raise Failed(f"{call}: status {status}, expected /{pattern}/ in:\n{output[-3000:]}")

    refuses("", "no row list; give ROWS")
    refuses("ROWS", "no row list; give ROWS")
    refuses("rows.txt", "'rows.txt' is not an argument")
    refuses("MODELS config.json", "MODELS is not supported by tessera .* row lists only")
    refuses("ROWS rows.txt TRACE trace.txt", "TRACE is not supported")
    refuses("ROWS rows.txt LOOKUP table.txt", "LOOKUP is not supported")
    refuses("ROWS none.txt", "none.txt: cannot read")
    refuses("ROWS rows.txt wrong.txt", "wrong.txt:2: 'flash_fwd.*block_kv_is_whole_register_tiles.*nearest rows")
    refuses("ROWS rows.txt BACKENDS cpu_avx512", "none of the 3 rows is of the backends cpu_avx512")
    refuses("ROWS rows.txt BACKENDS cuda_sm90", "'cuda_sm90' is not a backend")
    refuses("ROWS rows.txt BACKENDS", "BACKENDS names none")
    gives("ROWS rows.txt more.txt", WANTED + [NEW])
    gives("ROWS rows.txt BACKENDS cpu_generic", WANTED[1:])
    print("tessera_add_kernels builds what it is asked for and refuses the rest")


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(str(failed))
