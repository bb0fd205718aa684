#!/usr/bin/env python3
"""What one checkout compiled, ccache gives to another checkout and to a project that adds the sources
as a folder. Ends with 77 (skipped) without ccache or Ninja.

usage: shared_cache.py WORK_FOLDER [-- CMAKE_ARGUMENT...]"""
import pathlib
import shutil
import sys

from consumer import Failed, Project, run, script, source_entries

OBJECT = ("CMakeFiles/tessera_units_cpu_generic.dir/generated/units/cpu_generic/"
          "mean_pooling_f32.cpp.o")
WITHOUT_PROGRAMS = ["-DTESSERA_BUILD_TOOLS=OFF", "-DTESSERA_BUILD_TESTS=OFF"]


def counts(environment):
    """Hits and misses of the cache."""
    printed = dict(line.split("\t")[:2] for line in
                   run("ccache", "--print-stats", environment=environment)[1].splitlines())
    return (int(printed["direct_cache_hit"]) + int(printed["preprocessed_cache_hit"]),
            int(printed["cache_miss"]))


def build_checkout(folder, arguments, environment):
    """The unit in a copy of the sources, as the project itself is built."""
    folder.mkdir()
    for entry in source_entries():
        if entry.name in {"include", "generated", "conan-free-cmake"}:
            shutil.copytree(entry, folder / entry.name)
        elif entry.is_file():
            shutil.copy(entry, folder)
    run("cmake", "-S", folder, "-B", folder / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        *WITHOUT_PROGRAMS, *arguments, environment=environment)
    run("cmake", "--build", folder / "build", "--target", OBJECT, environment=environment)


def main():
    missing = [program for program in ("ccache", "ninja") if not shutil.which(program)]
    if missing:
        print(f"skipped: {', '.join(missing)} is not installed")
        sys.exit(77)
    work, *arguments = [word for word in sys.argv[1:] if word != "--"]
    consumer = Project(pathlib.Path(work) / "consumer", arguments=arguments)
    cache = consumer.folder / "cache"
    environment = {"CCACHE_DIR": str(cache), "CCACHE_PREFIX": ""}
    for name, expected in (("first", (0, 1)), ("second", (1, 1))):
        folder = consumer.folder / name
        build_checkout(folder, arguments, environment)
        if counts(environment) != expected:
            raise Failed(f"the {name} checkout: hits and misses are {counts(environment)}, expected {expected}")
    consumer.environment |= environment
    consumer.cmake_lists("")
    consumer.configure()
    consumer.build(f"tessera/{OBJECT}")
    if counts(environment) != (2, 1):
        raise Failed(f"the consumer: hits and misses are {counts(environment)}, expected (2, 1)")
    print("one compilation serves two checkouts and a consumer")


if __name__ == "__main__":
    script(main)
