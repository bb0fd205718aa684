#!/usr/bin/env python3
"""What the test units of each family cost to compile: no unit above a minute of one core, no family
above its budget, so that families can be added for years.

usage: test_cost.py BUILD_FOLDER

The seconds are those that tests/cost.txt records (tools/measure-cost --write), so that no machine and no
hour decides; a unit counts as often as the build compiles it, one without a record as UNKNOWN. Of files that
are compiled together each counts with its own record, and none of them together may take a minute. What the
tests themselves took in the last run of ctest is printed beside it."""
import collections
import json
import pathlib
import sys

from consumer import ROOT, Failed, script

sys.path.insert(0, str(ROOT / "tools/lib"))
from joined_units import files_of  # noqa: E402

MOST_OF_UNIT = 60
UNKNOWN = 8
# Of one core. The parts that every family shares count as one; a family that is not named gets NEW_FAMILY.
BUDGETS = {"shared parts": 900, "attention": 560, "GPU tests": 420}
NEW_FAMILY = 150


def family_of(path, families):
    """The family of a file or test: of the folder tests/op/<family> and of references that begin with its
    name; what else is in op/ serves all of them."""
    parts = path.split("/")
    if parts[0] == "cuda":
        return "GPU tests"
    if parts[0] == "tiles":
        return "attention"
    if parts[0] == "reference":
        return max((one for one in families if parts[1].startswith(one)), key=len, default="shared parts")
    return parts[1] if parts[0] == "op" and parts[1] in families else "shared parts"


def recorded():
    lines = (ROOT / "tests/cost.txt").read_text().splitlines()
    fields = (line.split(" ", 2) for line in lines if not line.startswith("#"))
    return {path: float(seconds) for seconds, _, path in fields}


def tests_of(unit):
    """The files under tests/ that a unit is made of."""
    return [file.relative_to(ROOT / "tests").as_posix() for file in files_of(unit)
            if file.is_relative_to(ROOT / "tests")]


def seconds_of_tests(build, families):
    """Seconds of the last run, by family, as ctest keeps them: lines of name, runs and seconds."""
    file = build / "Testing/Temporary/CTestCostData.txt"
    sums = collections.Counter()
    for line in file.read_text().split("---")[0].splitlines() if file.exists() else ():
        name, _, seconds = line.rsplit(" ", 2)
        sums[family_of(name, families)] += float(seconds)
    return sums


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    families = {path.name for path in (ROOT / "include/tessera/families").iterdir() if path.is_dir()}
    record, faults = recorded(), []
    units, unknown, compiled = collections.Counter(), collections.Counter(), collections.Counter()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        paths = tests_of(entry["file"])
        for path in paths:
            family = family_of(path, families)
            units[family] += 1
            unknown[family] += path not in record
            compiled[family] += record.get(path, UNKNOWN)
        seconds = sum(record.get(path, UNKNOWN) for path in paths)
        if seconds > MOST_OF_UNIT:
            faults.append(f"{' with '.join(f'tests/{path}' for path in paths)} compiles for {seconds:.0f} s, "
                          f"a unit at most for {MOST_OF_UNIT}")
    ran = seconds_of_tests(build, families)
    for family in sorted(units):
        budget = BUDGETS.get(family, NEW_FAMILY)
        print(f"{family}: {units[family]} files, {unknown[family]} without a record, compile for "
              f"{compiled[family]:.0f} s of one core (budget {budget})" +
              (f"; its tests took {ran[family]:.0f} s" if ran else ""))
        if compiled[family] > budget:
            faults.append(f"the test units of {family} compile for {compiled[family]:.0f} s, its budget is {budget}")
    if faults:
        raise Failed("\n".join(sorted(set(faults))))


if __name__ == "__main__":
    script(main)
