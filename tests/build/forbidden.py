#!/usr/bin/env python3
"""What the library does not do: print, end the process, start threads; and what no file here is:
unfinished, longer than a reader can hold, or with a table in a comment that a formatter has torn."""
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
    print("\n".join(faults) if faults else "nothing forbidden")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
