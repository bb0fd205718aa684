#!/usr/bin/env python3
"""What the library does not do: print, end the process, start threads; and what no file here is:
unfinished, longer than a reader can hold, with a table in a comment that a formatter has torn, or a
README of a room of kernels that names a file nobody has or leaves out one of its own."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

CALLS = re.compile(
    r"\b(abort|exit|_exit|quick_exit|terminate|printf|puts|putchar|fputs|fwrite|perror|system|popen)\s*\("
    r"|\bfprintf\s*\(|\bstd::(cout|cerr|clog)\b|#\s*include\s*<iostream>"
    r"|\bstd::(thread|jthread|async)\b(?!::hardware_concurrency)")
# The one place that may write: the sink that TESSERA_EXPLAIN asks for.
MAY_WRITE = re.compile(r"^include/tessera/runtime/impl/announce\.hpp$")
SOURCES = {".c", ".h", ".hpp", ".cpp", ".cu", ".cuh", ".cmake", ".sh", ".py"}
LONGEST = 400
LONGEST_README = 30  # of a room of kernels; notes on measurements lie beside it
NAMED_FILE = re.compile(r"`([\w/{},]+\.(?:hpp|cuh|md))`")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|#\s*if\s+0\b")
TABLE_ROW = re.compile(r"^\s*//[/!]? (\|.*)$")


def torn_tables(lines):
    """The numbers of lines that are not whole rows of the table they are in."""
    cells = None
    for number, line in enumerate(lines, 1):
        row = TABLE_ROW.match(line)
        if not row:
            cells = None
        elif set(row[1]) != set("|-"):
            count = len(re.findall(r" (?=\| )", row[1]))
            if not row[1].endswith("|") or cells not in (None, count):
                yield number
            cells = count


def expanded(name):
    """The names that braces stand for: a_{b,c}.hpp is a_b.hpp and a_c.hpp."""
    choice = re.search(r"\{([^{}]*)\}", name)
    if not choice:
        return [name]
    return [whole for part in choice[1].split(",")
            for whole in expanded(name[:choice.start()] + part + name[choice.end():])]


def readme_faults():
    """READMEs of rooms of kernels that are too long, name files that are not there, or not those that are."""
    folders = ("include", "tests", "tools", "bench", "conan-free-cmake", "generated")
    files = ["/" + path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).rglob("*")]
    ends = {file[start.start():] for file in files for start in re.finditer("/", file)}
    for path in sorted((ROOT / "include/tessera/kernels").rglob("README.md")):
        name = path.relative_to(ROOT).as_posix()
        lines = path.read_text().splitlines()
        if len(lines) > LONGEST_README:
            yield f"{name}: has {len(lines)} lines, the most is {LONGEST_README}"
        known = set()
        for number, line in enumerate(lines, 1):
            for file in (file for named in NAMED_FILE.findall(line) for file in expanded(named)):
                known.add(file)
                if "/" + file not in ends:
                    yield f"{name}:{number}: there is no {file}"
        folder = path.parent.name  # sm80/ has the README of sm90/ too where both are told of together
        yield from (f"{name}: does not name {file.name}" for file in sorted(path.parent.glob("*.hpp"))
                    if not known & {file.name, f"{folder}/{file.name}"})


def without_comments(text: str) -> str:
    blank = lambda match: re.sub(r"[^\n]", " ", match.group())
    return re.sub(r"//[^\n]*|/\*.*?\*/", blank, text, flags=re.S)


def main() -> int:
    faults = []
    for path in sorted((ROOT / "include").rglob("*.hpp")):
        name = path.relative_to(ROOT).as_posix()
        for number, line in enumerate(without_comments(path.read_text()).splitlines(), 1):
            found = CALLS.search(line)
            if found and not MAY_WRITE.match(name):
                faults.append(f"{name}:{number}: {found.group().strip()} is not for the library")
    for folder in ("include", "tools", "tests", "bench", "conan-free-cmake"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in SOURCES or path == pathlib.Path(__file__).resolve():
                continue
            name = path.relative_to(ROOT).as_posix()
            lines = path.read_text().splitlines()
            if len(lines) > LONGEST:
                faults.append(f"{name}: has {len(lines)} lines, the most is {LONGEST}")
            for number, line in enumerate(lines, 1):
                if UNFINISHED.search(line):
                    faults.append(f"{name}:{number}: unfinished: {line.strip()}")
            faults += [f"{name}:{number}: not a row of its table" for number in torn_tables(lines)]
    faults += readme_faults()
    print("\n".join(faults) if faults else "nothing forbidden")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
