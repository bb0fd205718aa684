#!/usr/bin/env python3
"""A build for one model, from the installed package: what it takes, what it weighs, that the engine
in engine.cpp runs on it without a fallback, that a problem it lacks does not compile, and that the
tuner (tuned.cpp) measures its rows.

usage: model_build.py WORK_FOLDER --prefix PREFIX [-- CMAKE_ARGUMENT...]"""
import os
import pathlib
import shutil
import sys
import time

from consumer import ROOT, Failed, compiled_units, project_of, script

MOST_BYTES = 5_000_000
KERNELS = ("tessera_add_kernels(my_kernels MODELS llama.json)\n"
           "add_executable(engine engine.cpp)\n"
           "target_link_libraries(engine PRIVATE my_kernels)\n"
           "add_executable(unserved EXCLUDE_FROM_ALL engine.cpp)\n"
           "target_compile_definitions(unserved PRIVATE UNSERVED)\n"
           "target_link_libraries(unserved PRIVATE my_kernels)\n"
           "if(TARGET tessera::tuner)\n"
           "  add_executable(tuned tuned.cpp)\n"
           "  target_link_libraries(tuned PRIVATE tessera::tuner my_kernels)\n"
           "endif()\n")


def main():
    project = project_of(sys.argv[1:])
    project.copy("engine.cpp", "tuned.cpp")
    shutil.copy(ROOT / "tools/models/llama-3.1-8b.json", project.folder / "llama.json")
    project.cmake_lists(KERNELS)
    start = time.monotonic()
    project.configure()
    units = compiled_units(project.build("my_kernels")[1])
    seconds = time.monotonic() - start
    size = project.found("libmy_kernels.a").stat().st_size
    print(f"one model, every CPU back end: {seconds:.0f} s for {len(units)} units on {os.cpu_count()} "
          f"cores (the aim is 60 s on 2 with CCACHE_DISABLE=1), {size / 1e6:.2f} MB (at most {MOST_BYTES / 1e6:.0f})")
    if size > MOST_BYTES:
        raise Failed(f"libmy_kernels.a has {size} bytes, at most {MOST_BYTES}")
    project.build()
    print(project.run("engine"), end="")
    if list(pathlib.Path(project.prefix).rglob("libtessera_tuner.*")):
        print(f"tuned: {project.run('tuned')}", end="")
    status, output = project.build("unserved", check=False)
    if status == 0 or "static assertion failed" not in output and "static_assert" not in output:
        raise Failed(f"a problem that the build lacks: status {status}, expected a failed assertion in:\n"
                     f"{output[-3000:]}")
    print("a problem that the build lacks does not compile")


if __name__ == "__main__":
    script(main)
