#!/usr/bin/env python3
"""What a library weighs without its kernels: code and data of the objects that belong to no back end,
as a program keeps them. Of functions that several objects have, a program keeps one: the first object
is charged for it, and what all families share comes first.

usage: core_size.py LIBRARY SHARED FAMILY [NAME=FAMILY...]: the most bytes of what all families share, of
a family, and of families that are named"""
import pathlib
import re
import subprocess
import sys
import tempfile

SHARED = ("runtime", "families", "lookup")
SECTION = re.compile(r"^\s*\[\s*(\d+)\] \S*\s+(\S+)\s+[0-9a-f]{16} [0-9a-f]+ ([0-9a-f]+) [0-9a-f]+"
                     r"\s+([A-Za-z]*)\s", re.M)
GROUP = re.compile(r"^COMDAT group section \[\s*\d+\] `\S*' \[(\S+)\] contains \d+ sections?:\n"
                   r"\s+\[Index\]\s+Name\n((?:\s+\[\s*\d+\].*\n)+)", re.M)


def kept_bytes(member, known):
    """Bytes of the sections of an object, without those of groups that are known; makes the others
    known."""
    text = subprocess.run(["readelf", "-SgW", str(member)], check=True, capture_output=True,
                          text=True).stdout
    dropped = set()
    for name, listed in GROUP.findall(text):
        if name in known:
            dropped.update(re.findall(r"\[\s*(\d+)\]", listed))
        known.add(name)
    return sum(int(size, 16) for number, kind, size, flags in SECTION.findall(text)
               if "A" in flags and kind != "NOBITS" and number not in dropped)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    library, most_shared, most_of_family = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    most_of = {name: int(most) for name, most in (named.split("=") for named in sys.argv[4:])}
    listed = subprocess.run(["ar", "t", library], check=True, capture_output=True,
                            text=True).stdout.split()
    members = [name for name in listed if "_units_" not in name and not name.endswith(".cu.o")]
    if not members:
        sys.exit(f"{library}: every object belongs to a back end")
    family_of = lambda member: member.split(".")[0]
    members.sort(key=lambda name: (family_of(name) not in SHARED, name))
    known, shared, total, failed = set(), 0, 0, False
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["ar", "x", str(pathlib.Path(library).resolve()), *members], check=True,
                       cwd=folder)
        for member in members:
            size = kept_bytes(pathlib.Path(folder) / member, known)
            print(f"{size:8d}  {member}")
            total += size
            most = most_of.get(family_of(member), most_of_family)
            if family_of(member) in SHARED:
                shared += size
            elif size > most:
                print(f"{member} has {size} bytes, the most is {most}")
                failed = True
    print(f"the core without kernels has {total} bytes, of which all families share {shared}; "
          f"the most is {most_shared}")
    return 1 if failed or shared > most_shared else 0


if __name__ == "__main__":
    sys.exit(main())
