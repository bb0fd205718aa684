#!/usr/bin/env python3
"""The C interface of the installed package: from C with CMake (linked and shared), from C with a
compiler alone, and from Python's ctypes.

usage: c_interface.py WORK_FOLDER PREFIX C_COMPILER [-- CMAKE_ARGUMENT...]"""
import pathlib
import re
import sys

from consumer import ROOT, Failed, Project, run, script

TESTS = ROOT / "tests/build/c_interface"
PROGRAMS = ("add_executable(linked program.c)\n"
            "target_link_libraries(linked PRIVATE tessera::c m)\n"
            "add_executable(loaded program.c)\n"
            "target_link_libraries(loaded PRIVATE tessera::c_shared m)\n")


def main():
    work, prefix, compiler, *rest = sys.argv[1:]
    project = Project(work, prefix, [argument for argument in rest if argument != "--"], languages="C CXX")
    project.copy("c_interface/program.c")
    project.cmake_lists(PROGRAMS)
    project.configure()
    project.build()
    for program in ("linked", "loaded"):
        print(f"{program}: {project.run(program)}", end="")
    library = next(pathlib.Path(prefix).rglob("libtessera_c.so"))
    program = project.folder / "alone"
    run(compiler, "-std=c99", "-D_ISOC11_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
        f"-I{prefix}/include", TESTS / "program.c", f"-L{library.parent}", "-ltessera_c", "-lm",
        f"-Wl,-rpath,{library.parent}", "-o", program)
    print(f"alone: {run(program)[1]}", end="")
    print(run(sys.executable, TESTS / "loaded.py", library)[1], end="")
    names = re.findall(r" [TWVDB] (\S+)$", run("nm", "-D", "--defined-only", library)[1], re.M)
    others = [name for name in names if not name.startswith("tessera_")]
    if others or not names:
        raise Failed(f"{library}: exports {others[:10]} beside {len(names) - len(others)} C functions")
    print(f"{len(names)} functions and nothing else are exported")


if __name__ == "__main__":
    script(main)
