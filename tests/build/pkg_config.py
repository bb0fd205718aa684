#!/usr/bin/env python3
"""Compiles the smoke program with the flags that pkg-config gives.

usage: pkg_config.py PREFIX COMPILER"""
import pathlib
import sys
import tempfile

from consumer import ROOT, Failed, run, script


def main():
    prefix, compiler = sys.argv[1:]
    where = [str(path.parent) for path in pathlib.Path(prefix).rglob("tessera.pc")]
    if len(where) != 1:
        raise Failed(f"{prefix}: {len(where)} files tessera.pc, expected one")
    environment = {"PKG_CONFIG_PATH": where[0]}
    flags = run("pkg-config", "--cflags", "--libs", "tessera", environment=environment)[1].split()
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "smoke"
        run(compiler, "-std=c++20", ROOT / "tests/build/smoke.cpp", *flags, "-o", program)
        unit = pathlib.Path(folder) / "unit.c"
        unit.write_text("#include <tessera/interop/c.h>\n")
        for language in ("c", "c++"):
            run(compiler, "-fsyntax-only", "-Wall", "-Werror", "-x", language, unit, *flags)
        rows = [line for line in run(program)[1].splitlines() if line.startswith("attention.")]
    print(f"{len(rows)} rows run with {' '.join(flags)}")


if __name__ == "__main__":
    script(main)
