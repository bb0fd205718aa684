"""Units that the build system makes of several files (CMake's UNITY_BUILD)."""
import pathlib
import re


def files_of(unit):
    """The files that a unit is made of: itself, or those that it joins."""
    unit = pathlib.Path(unit)
    if unit.parent.name != "Unity" or not unit.exists():
        return [unit]
    return [pathlib.Path(file) for file in re.findall(r'#include "([^"]+)"', unit.read_text())]
