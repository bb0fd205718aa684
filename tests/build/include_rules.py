#!/usr/bin/env python3
"""Who may include whom among the rooms of include/tessera, and what the public interface may pull in."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2] / "include" / "tessera"
GENERATED = ROOT.parents[1] / "generated" / "include" / "tessera"

# A room and the rooms it may include. "top" is include/tessera/*.hpp: it joins rooms for users.
ALLOWED = {
    "spec": {"spec"},
    "prim": {"spec", "prim"},
    "families": {"spec", "prim/common", "families"},
    "kernels": {"spec", "prim", "families", "kernels"},
    "lookup": {"spec", "lookup"},
    "lookup/impl": {"spec", "lookup", "lookup/impl"},
    "runtime": {"spec", "families", "lookup", "runtime"},
    "runtime/impl": {"spec", "families", "lookup", "lookup/impl", "runtime", "runtime/impl", "api",
                     "prim/common"},
    "api": {"spec", "families", "runtime", "api"},
    "interop": {"spec", "interop"},
    "interop/impl": {"spec", "runtime", "api", "interop", "interop/impl", "top"},
    "top": {"spec", "prim", "families", "kernels", "lookup", "runtime", "api",
            "interop", "top"},
}
# Single headers that reach further.
ALSO = {
    # Calls and plans of any operation are said in terms of the context and the plan.
    "runtime/operation.hpp": ("api/context.hpp", "api/plan.hpp"),
}
# Headers of other libraries, and who may include them.
OUTSIDE = {
    "boost/": re.compile(r"(^|/)reflect\.hpp$|problem_text\.hpp$|/table\.hpp$|/impl/"),
    "omp.h": re.compile(r"^prim/cpu/|^prim/common/processors\.hpp$|^kernels/|^runtime/impl/"),
    "Eigen/": re.compile(r"^interop/"),
    "immintrin.h": re.compile(r"^prim/cpu/|^runtime/impl/"),
}
# What the public interface must not reach, directly or not.
PUBLIC = ["tessera.hpp", "flash_attention.hpp"]
KEPT_OUT = ("boost/", "omp.h", "immintrin.h", "Eigen/", "cuda")

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)


def room_of(path: str) -> str:
    parts = path.split("/")
    if len(parts) == 1:
        return "top"
    if len(parts) > 2 and parts[1] == "impl":
        return f"{parts[0]}/impl"
    return parts[0]


def may_include(path: str, target: str) -> bool:
    allowed = ALLOWED[room_of(path)]
    return target in ALSO.get(path, ()) or room_of(target) in allowed or any(
        "/" in room and target.startswith(room + "/") for room in allowed)


def main() -> int:
    texts = {str(path.relative_to(root)): path.read_text() for root in (ROOT, GENERATED)
             for path in root.rglob("*.h*")}
    faults = []
    ours = {}
    outside = {}
    for path, text in texts.items():
        if room_of(path) not in ALLOWED:
            faults.append(f"{path}: there is no rule for the room {room_of(path)}")
            continue
        names = INCLUDE.findall(text)
        ours[path] = [name[len("tessera/"):] for name in names if name.startswith("tessera/")]
        outside[path] = [name for name in names if not name.startswith("tessera/")]
        for target in ours[path]:
            if target not in texts:
                faults.append(f"{path}: includes {target}, which does not exist")
            elif not may_include(path, target):
                faults.append(f"{path}: {room_of(path)} may not include {target}")
        for name in outside[path]:
            for prefix, who in OUTSIDE.items():
                if name.startswith(prefix) and not who.search(path):
                    faults.append(f"{path}: may not include {name}")
        if "#pragma once" not in text and not (path.endswith(".h") and "\n#ifndef " in text):
            faults.append(f"{path}: has no #pragma once, or no guard if it is for C")
    for path, targets in ALSO.items():
        faults += [f"{path}: does not include {target}, which it may" for target in targets
                   if target not in ours.get(path, [])]
    for start in PUBLIC:
        reached, waiting = set(), [start]
        while waiting:
            path = waiting.pop()
            if path in reached:
                continue
            reached.add(path)
            waiting += [name for name in ours.get(path, []) if name in texts]
            for name in outside.get(path, []):
                if name.startswith(KEPT_OUT):
                    faults.append(f"{start}: reaches {name} through {path}")
    print("\n".join(faults) if faults else f"{len(texts)} headers keep the rules")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
