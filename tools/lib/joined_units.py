"""Units that the build system makes of several files (tessera_write_joined, CMake's UNITY_BUILD)."""
import os
import pathlib
import re


def files_of(unit):
    """The files that a unit is made of: itself, or those that it joins."""
    unit = pathlib.Path(unit)
    if not (unit.parent.name == "Unity" or unit.parent.parent.name == "joined") or not unit.exists():
        return [unit]
    return [pathlib.Path(os.path.normpath(unit.parent / file))
            for file in re.findall(r'#include "([^"]+)"', unit.read_text())]
