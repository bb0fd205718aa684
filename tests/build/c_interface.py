#!/usr/bin/env python3
"""The C interface of the installed package: from C with CMake (linked and shared), of a build with rows
of one family, from C with a compiler alone, and from Python's ctypes.

usage: c_interface.py WORK_FOLDER PREFIX C_COMPILER [-- CMAKE_ARGUMENT...]"""
import pathlib
import re
import shutil
import sys

from consumer import ROOT, Failed, Project, run, script

TESTS = ROOT / "tests/build/c_interface"
CALLS = sorted(TESTS.glob("*.c"))  # of one program, that calls everything
CALLS.remove(TESTS / "partial.c")
PROGRAMS = ("foreach(kind IN ITEMS c c_shared)\n"
            f"  add_executable(with_${{kind}} {' '.join(call.name for call in CALLS)})\n"
            "  target_link_libraries(with_${kind} PRIVATE tessera::${kind} m)\n"
            "endforeach()\n"
            "tessera_add_kernels(pooling ROWS rows.txt)\n"
            "add_executable(partial partial.c)\n"
            "target_link_libraries(partial PRIVATE pooling_c m)\n")


def names_called(program):
    """The text with the functions of calls that a macro makes of an operation's name."""
    if "tessera_##name" not in program:
        return program
    return re.sub(r"\bCHECK\((\w+),", r"tessera_\1, tessera_plan_\1, tessera_run_\1,", program)


def check_names(library, include):
    """The library exports what c.h declares, and the tests call every operation."""
    common, operations = ((include / "tessera/interop" / name).read_text() for name in ("c.h", "c_operations.h"))
    declared = set(re.findall(r"^TESSERA_API .*?\b(tessera_\w+)\(", common, re.M))
    exported = set(re.findall(r" [TWVDB] (\S+)$", run("nm", "-D", "--defined-only", library)[1], re.M))
    if declared != exported or not declared:
        raise Failed(f"{library}: of exported and declared functions {sorted(declared ^ exported)} are not both")
    functions = re.findall(r"^static inline int32_t (tessera_\w+)\(", operations, re.M)
    program = "".join(names_called(call.read_text()) for call in CALLS if call.name != "program.c")
    missing = [name for name in functions if not re.search(rf"\b{name}\b", program)
               and not name.startswith(("tessera_plan_flash_", "tessera_run_flash_"))]  # those of program.c
    if missing or not functions:
        raise Failed(f"the programs in {TESTS} do not use {', '.join(missing)}")
    print(f"{len(declared)} functions and nothing else are exported, {len(functions)} inline ones are tested")


def main():
    work, prefix, compiler, *rest = sys.argv[1:]
    project = Project(work, prefix, [argument for argument in rest if argument != "--"], languages="C CXX")
    for source in TESTS.glob("*.[ch]"):
        shutil.copy(source, project.folder)
    project.write("rows.txt", "mean_pooling.cpu_generic.f32.forward.s4\n")
    project.cmake_lists(PROGRAMS)
    project.configure()
    project.build()
    for program in ("with_c", "with_c_shared", "partial"):
        print(f"{program}: {project.run(program)}", end="")
    library = next(pathlib.Path(prefix).rglob("libtessera_c.so"))
    program = project.folder / "alone"
    run(compiler, "-std=c99", "-D_ISOC11_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
        f"-I{prefix}/include", *CALLS, f"-L{library.parent}", "-ltessera_c", "-lm",
        f"-Wl,-rpath,{library.parent}", "-o", program)
    print(f"alone: {run(program)[1]}", end="")
    print(run(sys.executable, TESTS / "loaded.py", library)[1], end="")
    check_names(library, pathlib.Path(prefix) / "include")


if __name__ == "__main__":
    script(main)
