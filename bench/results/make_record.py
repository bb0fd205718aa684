#!/usr/bin/env python3
"""Turns the JSON that bench programs write into a record: one Markdown table a group of cases.

usage: make_record.py build/bench/*.json > bench/results/<date>.<machine>.md

Cases that failed or that other programs disturbed are marked; a peer's entries (label "peer:...")
become columns beside ours."""
import json
import math
import pathlib
import re
import sys

FRAME = re.compile(r"/(iterations:|manual_time).*$")
GOALS = {"peak": "of_peak", "read": "of_read", "rate": "rate_to_beside", "time": "time_to_beside"}


def number(value, digits=1, unit=""):
    return "" if not value else f"{value:.{digits}f}{unit}"


def groups_of(files):
    """({group: {case: [entries]}}, [contexts])"""
    groups, contexts = {}, []
    for path in files:
        record = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        contexts.append(record["context"])
        for entry in record["benchmarks"]:
            name = FRAME.sub("", entry["name"])
            group, _, case = name.partition("/")
            groups.setdefault(group, {}).setdefault(case, []).append(entry)
    return groups, contexts


def remarks(entry):
    said = []
    if entry.get("time_to_beside"):
        said.append(f"time x{entry['time_to_beside']:.3f}, rate x{entry['rate_to_beside']:.2f} "
                    "of the call beside")
    if entry.get("goal"):
        said.append(f"{100 * entry['of_goal']:.0f} % of the goal {entry['goal']:g}")
    if entry.get("disturbed"):
        said.append("**disturbed**")
    return "; ".join(said)


def print_group(group, cases):
    peers = sorted({entry["label"].split(":", 1)[1]
                    for entries in cases.values() for entry in entries
                    if entry.get("label", "").startswith("peer:")
                    and not entry.get("error_occurred")})
    print(f"\n## {group}\n")
    head = ["problem", "row", "median ms", "GFLOP/s", "GB/s", "of the ceiling", "error"]
    for peer in peers:
        head += [f"{peer}, ms", "ratio", "error"]
    print("| " + " | ".join(head + ["remarks"]) + " |")
    print("|" + "---|" * (len(head) + 1))
    shares = []
    for case, entries in cases.items():
        ours = [one for one in entries if not one.get("label", "").startswith("peer:")]
        if not ours:
            continue
        one = ours[0]
        problem = case.removeprefix("flash_attention ")
        if one.get("error_occurred"):
            print(f"| {problem} | FAILED: {one['error_message']} |" + " |" * len(head))
            continue
        share = one.get("of_ceiling", 0)
        if share:
            shares.append(share)
        cells = [problem, one.get("label", ""), number(one.get("median_us", 0) / 1e3, 3),
                 number(one.get("GFLOP/s")), number(one.get("GB/s")), number(100 * share, 1, " %"),
                 f"{one['error']:.1e}" if one.get("error") else ""]
        for peer in peers:
            theirs = next((e for e in entries if e.get("label") == "peer:" + peer
                           and not e.get("error_occurred")), None)
            cells += ["", "", ""] if theirs is None else [
                number(theirs["median_us"] / 1e3, 2),
                number(theirs["median_us"] / one["median_us"], 2, "x"),
                f"{theirs['error']:.1e}" + (" (disturbed)" if theirs.get("disturbed") else "")]
        print("| " + " | ".join(cells + [remarks(one)]) + " |")
    if shares:
        mean = math.exp(sum(map(math.log, shares)) / len(shares))
        print(f"\nGeometric mean of the share of the ceiling: {100 * mean:.1f} %.")
    held = [e for entries in cases.values() for e in entries if e.get("goal")]
    if held:
        print(f"{sum(e.get('of_goal', 0) >= 1 for e in held)} of {len(held)} goals reached.")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    groups, contexts = groups_of(sys.argv[1:])
    about = next((one for one in contexts if "processor" in one), contexts[0])
    workers = next((f"{about[name]} {name}" for name in ("threads", "multiprocessors") if name in about), "")
    print(f"# {about.get('processor', 'unnamed processor')}, {workers}\n")
    print(f"tessera {about.get('version', '')}, {about.get('compiler', '')}. Random normal inputs, "
          "verified against the definition in double before timing, medians; shares and ratios are "
          "taken round by round with what was measured beside. Ceilings of the runs:\n")
    for one in contexts:
        if "fma_f32_gflops" in one:
            print("* " + ", ".join(f"{name} {float(value):.1f}" for name, value in one.items()
                                   if name.endswith(("_gflops", "_gbytes", "_ghz", "_ns"))))
    for group, cases in groups.items():
        print_group(group, cases)


if __name__ == "__main__":
    main()
