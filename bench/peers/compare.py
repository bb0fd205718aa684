#!/usr/bin/env python3
"""Our bench and its peers on the same problems, in one go, in random order, with the ceilings of
the same run.

usage: compare.py [--bench PROGRAM] [--ggml PROGRAM] [--torch PYTHON] [--cases FILE]
                  [--filter REGEX] [--threads N] [--repeats N] [--seed N] [--output FILE.json]

Every program is started once and answers one problem at a time; the others wait meanwhile.
Each (problem, program) pair is asked --repeats times in shuffled order; medians are reported."""
import argparse
import json
import math
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("TESSERA_BUILD_DIR", HERE.parents[1] / "build"))


class Program:
    """A program that answers lines with lines and sleeps in between (its OpenMP threads too)."""

    def __init__(self, name, command, threads):
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_PROC_BIND="true")
        if name == "tessera":
            environment.pop("OMP_PROC_BIND")  # pins its threads itself
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=environment)
        self.ask("flash_attention q=[1,1,1,64]f32 k=[1,1,1,64]")

    def ask(self, problem):
        try:
            self.process.stdin.write(problem + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            sys.exit(f"{self.name} ended with status {self.process.wait()} at: {problem}")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def median_of(answers):
    """The answers of one pair as one: medians of the numbers, or the failure."""
    failed = [one for one in answers if "failure" in one]
    if failed:
        return failed[0]
    merged = dict(answers[0])
    for name, value in answers[0].items():
        if isinstance(value, (int, float)):
            merged[name] = statistics.median(one.get(name, 0) for one in answers)
    for rate, amount in (("GFLOP/s", "flops"), ("GB/s", "bytes")):
        merged[rate] = merged[amount] / merged["median_us"] * 1e-3
    merged["repeats"] = len(answers)
    merged["spread"] = max(a["median_us"] for a in answers) / min(a["median_us"] for a in answers)
    merged["disturbed"] = sum(one.get("disturbed", 0) for one in answers)
    return merged


def cases_in(path, pattern):
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines
            if line and not line.startswith("#") and re.search(pattern, line)]


def print_table(cases, results, peers):
    header = f"{'ms':>9} {'GFLOP/s':>8} {'GB/s':>6} {'ceiling':>8} {'error':>8}"
    for peer in peers:
        header += f" | {peer:>5} ms {'ratio':>6} {'error':>8}"
    print(header + "  problem")
    ratios = {peer: [] for peer in peers}
    for case in cases:
        ours = results[case]["tessera"]
        if "failure" in ours:
            print(f"FAILED: {ours['failure']}  {case}")
            continue
        line = (f"{ours['median_us'] / 1e3:9.3f} {ours['GFLOP/s']:8.1f} {ours['GB/s']:6.1f} "
                f"{100 * ours['of_ceiling']:7.1f}% {ours['error']:8.1e}")
        for peer in peers:
            theirs = results[case][peer]
            if "failure" in theirs:
                line += f" | {'-':>8} {'-':>6} {'-':>8}"
                continue
            ratio = theirs["median_us"] / ours["median_us"]
            ratios[peer].append(ratio)
            line += f" | {theirs['median_us'] / 1e3:8.2f} {ratio:5.2f}x {theirs['error']:8.1e}"
        marks = [name for name, one in results[case].items() if one.get("disturbed")]
        print(line + "  " + case.split("#")[0].strip()
              + (f"  [disturbed: {', '.join(marks)}]" if marks else ""))
    for peer, values in ratios.items():
        if values:
            mean = math.exp(statistics.fmean(map(math.log, values)))
            print(f"{peer}: {mean:.2f} x our time in the geometric mean of {len(values)} cases, "
                  f"least {min(values):.2f} x")


def ceilings_of(results):
    """The limits that were probed next to our rounds, over the whole run."""
    limits = {}
    for name in ("peak_gflops", "peak_gbytes"):
        seen = [one["tessera"][name] for one in results.values() if name in one["tessera"]]
        if seen:
            limits[name] = (min(seen), statistics.median(seen), max(seen))
    return limits


def record(results, limits, options):
    """The same in Google Benchmark's format: a peer's timing is a case of our case's name."""
    entries = []
    for case, answers in results.items():
        for name, one in answers.items():
            entry = {key: value for key, value in one.items() if key not in ("case", "row")}
            entry |= {"name": "peers/" + case.split("#")[0].strip(), "run_type": "iteration"}
            row = one.get("row", name)
            entry["label"] = row if name == "tessera" else "peer:" + row
            if "failure" in one:
                entry |= {"error_occurred": True, "error_message": one["failure"]}
            entries.append(entry)
    context = {"threads": str(options.threads), "repeats": options.repeats, "seed": options.seed}
    context |= {name: value[1] for name, value in limits.items()}
    return {"context": context, "benchmarks": entries}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bench", default=str(BUILD / "bin/bench_flash_attention"))
    parser.add_argument("--ggml", help="the peer_ggml program")
    parser.add_argument("--torch", help="a Python that has torch and numpy")
    parser.add_argument("--cases", type=pathlib.Path, default=HERE / "cases.txt")
    parser.add_argument("--filter", default="", help="regular expression that problems must match")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()

    commands = {"tessera": [options.bench, "--problems=-"]}
    if options.ggml:
        commands["ggml"] = [options.ggml]
    if options.torch:
        commands["torch"] = [options.torch, str(HERE / "torch_attention.py")]
    cases = cases_in(options.cases, options.filter)
    programs = [Program(name, command, options.threads) for name, command in commands.items()]
    answers = {case: {one.name: [] for one in programs} for case in cases}
    pairs = [(case, one) for case in cases for one in programs] * options.repeats
    random.Random(options.seed).shuffle(pairs)
    for number, (case, program) in enumerate(pairs, 1):
        print(f"\r{number}/{len(pairs)} ", end="", file=sys.stderr, flush=True)
        before = answers[case][program.name]
        if not (before and "failure" in before[0]):
            before.append(program.ask(case))
    print(file=sys.stderr)
    for program in programs:
        program.close()

    results = {case: {name: median_of(each) for name, each in one.items()}
               for case, one in answers.items()}
    print_table(cases, results, [name for name in commands if name != "tessera"])
    limits = ceilings_of(results)
    for name, (low, middle, high) in limits.items():
        unit = "GFLOP/s of multiply-adds" if name == "peak_gflops" else "GB/s of reading"
        print(f"ceilings next to the rounds, {options.threads} threads: {middle:.1f} {unit} "
              f"(from {low:.1f} to {high:.1f}, by case)")
    if options.output:
        options.output.write_text(json.dumps(record(results, limits, options), indent=1) + "\n",
                                  encoding="utf-8")


if __name__ == "__main__":
    main()
