#!/usr/bin/env python3
"""The headers of include/, device code excepted: headers.py COMPILER|--tidy [--together].

With a compiler: each compiles alone, headers of instruction sets (*_avx*.hpp) with those of the last
back end, and all of them together with these. With --together, for another compiler's opinion: all in a
unit with these, all but those headers in one without. With --tidy: clang-tidy over one unit that includes
them all, with those instruction sets and clang's warnings.

What many headers include is precompiled, and headers of which each includes the one before it share a unit.
That proves the same: a header is put behind others only if it includes them anyway, all includes stand
before a header's own code, and every header that it includes has its own turn."""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2] / "include"
PRICE = 3  # how many times as long it takes to precompile a header as to compile it
WIDEST = "-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx512bf16".split()
FLAGS = ["-std=c++20", f"-I{ROOT}", f"-I{ROOT.parent}/generated/include", "-fopenmp", "-Wall", "-Wextra",
         "-Wpedantic", "-Wconversion", "-Wshadow", "-Wno-unused-function"]

# Device code needs nvcc, the run time of CUDA its headers.
DEVICE = re.compile(r"^tessera/(prim|runtime/impl)/cuda/")
REACHES_DEVICE = re.compile(r"^cuda|^tessera/prim/cuda/")
INCLUDE = re.compile(r'#\s*include\s*[<"]([^>"]+)[>"]')


def eigen():
    done = subprocess.run(["pkg-config", "--cflags-only-I", "eigen3"], capture_output=True, text=True)
    folder = done.stdout.strip()[2:] if done.returncode == 0 else ""
    return ["-isystem", folder or "/usr/include/eigen3"]


def included_by(text):
    """What a header includes whatever the flags are, and whether all of it stands before its code."""
    names, conditions, code, first = [], 0, False, True
    for line in re.sub(r"//.*|/\*[\s\S]*?\*/", "", text).splitlines():
        word = line.strip()
        if word.startswith("#if"):
            conditions += 1
        elif word.startswith("#endif"):
            conditions -= 1
        elif found := INCLUDE.match(word):
            first = first and not code
            if conditions == 0:
                names.append(found[1])
        elif word and not word.startswith("#"):
            code = True
    return names, first


def closures(headers):
    """All that each header reaches, itself excepted; None where an include stands behind code."""
    direct = {name: included_by((ROOT / name).read_text()) for name in headers}
    reached = {}

    def closure(name):
        if name not in reached:
            reached[name] = set()
            names, first = direct.get(name, ((), True))
            parts = [closure(included) for included in names]
            reached[name] = None if not first or None in parts else set(names).union(*parts)
        return reached[name]

    return {name: closure(name) for name in headers}


def without_device_code(headers):
    reached = closures(headers)
    return [name for name in headers if not DEVICE.match(name) and
            not any(map(REACHES_DEVICE.match, reached[name] or ()))]


def precompiled_for(headers, sizes_of):
    """The header that each is put behind, or None: those that spare the rest more text than they cost.
    `sizes_of(name)` has the bytes of each file that a header of the system reaches."""
    reached = {name: found or set() for name, found in closures(headers).items()}
    system = {name for found in reached.values() for name in found} - set(headers)
    files = {name: sizes_of(name) for name in system}
    files |= {name: {name: (ROOT / name).stat().st_size} for name in headers}

    def text_of(name):
        every = {}
        for part in {name} | reached[name]:
            every |= files[part]
        return sum(every.values())

    text = {name: text_of(name) for name in headers} | {None: 0}
    chosen = {name: None for name in headers}

    def gain(base):
        users = [name for name in headers if base in reached[name] and text[base] > text[chosen[name]]]
        return sum(text[base] - text[chosen[name]] for name in users) - PRICE * text[base], base, users

    while True:
        most, base, users = max(map(gain, headers))
        if most <= 0:
            return chosen
        chosen |= dict.fromkeys(users, base)


def chains_of(headers, reached, chosen):
    """The headers in lists whose units hold no more than each would alone: they stand behind the same
    precompiled header, with the same flags, and all that come before a header are among what it reaches."""
    chains = []
    for name in sorted(headers, key=lambda name: len(reached[name] or ())):
        def is_next(chain):
            last = chain[-1]
            return (last in (reached[name] or ()) and chosen[last] == chosen[name] and
                    sets_of(last) == sets_of(name))

        found = max(filter(is_next, chains), key=lambda chain: len(reached[chain[-1]]), default=None)
        if found:
            found.append(name)
        else:
            chains.append([name])
    return chains


class Checker:
    """Compiles headers with one compiler, in a folder of its own."""

    def __init__(self, compiler, folder):
        self.compiler = compiler
        self.folder = pathlib.Path(folder)
        self.flags = FLAGS + eigen()
        version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
        self.clang = "clang" in version.stdout

    def source(self, names, sets, suffix, copies):
        path = self.folder / f"{names[-1].replace('/', '_')}{'.wide' if sets else ''}{suffix}"
        path.write_text("".join(f"#include <{name}>\n" * copies for name in names))
        return path

    def run(self, *arguments):
        return subprocess.run([self.compiler, *self.flags, *map(str, arguments)], capture_output=True,
                              text=True)

    def sizes_of(self, name):
        """The bytes of each file that a header of the system reaches; none if there is no such header."""
        done = self.run("-M", self.source([name], [], ".sizes.cpp", 1))
        paths = done.stdout.replace("\\\n", " ").split()[2:] if done.returncode == 0 else []
        return {path: os.stat(path).st_size for path in paths}

    def precompile(self, task):
        """What a unit is compiled with to stand behind the header; nothing where that fails."""
        name, sets = task
        source = self.source([name], sets, ".hpp", 1)
        built = source.with_name(source.name + ".gch")
        if self.run(*sets, "-x", "c++-header", source, "-o", built).returncode != 0:
            return []  # the header's own turn says why
        return ["-include-pch", built] if self.clang else ["-Winvalid-pch", "-include", source]

    def check(self, names, sets, behind):
        """A unit that includes each header of a chain twice; what is wrong with it."""
        done = self.run("-fsyntax-only", "-Werror", *sets, *behind, self.source(names, sets, ".cpp", 2))
        if done.returncode == 0:
            return ""
        return (f"{done.stdout}{done.stderr}of {', '.join(names)} one does not compile alone, with flags: "
                f"{' '.join(sets)}")


def sets_of(name):
    return WIDEST if "_avx" in pathlib.Path(name).name else []


def check_each(checker, headers, pool):
    chosen = precompiled_for(headers, checker.sizes_of)
    wanted = {(chosen[name], tuple(sets_of(name))) for name in headers if chosen[name]}
    behind = dict(zip(wanted, pool.map(checker.precompile, wanted)))
    return list(pool.map(lambda chain: checker.check(
        chain, sets_of(chain[0]), behind.get((chosen[chain[0]], tuple(sets_of(chain[0]))), [])),
        chains_of(headers, closures(headers), chosen)))


def compile_together(checker, headers, sets):
    """A unit of all headers that compile with these instruction sets; what is wrong with it."""
    source = checker.source(["all"], sets, ".cpp", 0)
    source.write_text("".join(f"#include <{name}>\n" for name in headers if sets or not sets_of(name)))
    done = checker.run("-fsyntax-only", "-Werror", *sets, source)
    return done.stdout + done.stderr if done.returncode != 0 else ""


def compile_all(compiler, headers, jobs, alone):
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        checker = Checker(compiler, folder)
        together = [pool.submit(compile_together, checker, headers, sets)
                    for sets in ([WIDEST] if alone else [WIDEST, []])]
        faults = check_each(checker, headers, pool) if alone else []
        return [fault for fault in [*faults, *(unit.result() for unit in together)] if fault]


def tidy(headers):
    with tempfile.TemporaryDirectory() as folder:
        unit = pathlib.Path(folder) / "all.cpp"
        unit.write_text("".join(f"#include <{name}>\n" for name in headers))
        done = subprocess.run(["clang-tidy", "--quiet", f"--config-file={ROOT.parent / '.clang-tidy'}",
                               str(unit), "--", *FLAGS, *eigen(), *WIDEST], capture_output=True, text=True)
        return [done.stdout + done.stderr] if done.returncode != 0 else []


def main():
    if len(sys.argv) != 2 and sys.argv[2:] != ["--together"]:
        sys.exit("usage: headers.py COMPILER|--tidy [--together]")
    headers = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.hpp"))
    headers = without_device_code(headers)
    if sys.argv[1] == "--tidy":
        faults = tidy(headers)
    else:
        faults = compile_all(sys.argv[1], headers, os.cpu_count() or 1, alone=len(sys.argv) == 2)
    if faults:
        sys.exit("\n".join(faults))
    print(f"{len(headers)} headers")


if __name__ == "__main__":
    main()
