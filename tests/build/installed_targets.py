#!/usr/bin/env python3
"""What `cmake --install` takes from the build folder is built by what tools/quickstart builds.
Ends with 77 (skipped) where the build tool is not Ninja.

usage: installed_targets.py BUILD_FOLDER"""
import pathlib
import re
import sys

from consumer import ROOT, Failed, run, script


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    if not (build / "build.ninja").exists():
        print("skipped: the build tool is not Ninja")
        sys.exit(77)
    targets = re.findall(r"^\s*build (\w+)", (ROOT / "tools/quickstart").read_text(), re.M)
    built = set(run("ninja", "-C", build, "-t", "commands", *targets)[1].split())
    rules = "".join(path.read_text() for path in build.rglob("cmake_install.cmake"))
    installed = {pathlib.Path(path) for path in re.findall(r'"([^"]*)"', rules)}
    products = {line.split(":")[0] for line in
                run("ninja", "-C", build, "-t", "targets", "all")[1].splitlines()}
    taken = {path.relative_to(build).as_posix() for path in installed
             if path.is_relative_to(build)} & products
    missing = sorted(taken - built)
    if missing or not taken:
        raise Failed(f"tools/quickstart builds {', '.join(targets)}, and cmake --install takes {len(taken)} files: "
                     f"{', '.join(missing)} are not among what it built")
    print(f"tools/quickstart builds all {len(taken)} files that cmake --install takes")


if __name__ == "__main__":
    script(main)
