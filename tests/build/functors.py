#!/usr/bin/env python3
"""Gradients with a functor of logits that has no derivative do not compile, and a sentence says what
is missing; with one the same text compiles. On both back ends: the CPU's by COMPILER, that of GPUs
where NVCC is given, whose front end alone runs.

usage: functors.py COMPILER [NVCC]"""
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SENTENCE = ("gradients need the derivative of a functor of logits: give it a member with_slope("
            "float score, const tessera::position& at) that returns a tessera::score_with_slope")

TEXT = """#include <tessera/{header}.hpp>
using namespace tessera;
struct row {{ static constexpr attention_backward_config config{{{config}}}; }};
struct softer {{
  TESSERA_HD float operator()(float score, const position&) const {{ return score / 2; }}
{derivative}}};
status trial(const attention_backward_args& args) {{
  return launch<row>(args, {{.causal = true}}, {where}{{}}, with_logits(softer{{}}));
}}
"""
DERIVATIVE = """  TESSERA_HD score_with_slope with_slope(float score, const position&) const {
    return {score / 2, 0.5f};
  }
"""


def compiled(text, suffix, command):
    """Whether a unit compiles, and all that the compiler says of it, on one line."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / f"trial{suffix}"
        source.write_text(text)
        done = subprocess.run([*command, "-std=c++20", f"-I{ROOT}/include",
                               f"-I{ROOT}/generated/include", str(source)],
                              capture_output=True, text=True, cwd=folder)
        return done.returncode == 0, " ".join((done.stdout + done.stderr).split())


def faults_on(name, suffix, command, **place):
    compiles, said = compiled(TEXT.format(derivative=DERIVATIVE, **place), suffix, command)
    faults = [] if compiles else [f"{name}: a functor with its derivative does not compile: {said[:2000]}"]
    compiles, said = compiled(TEXT.format(derivative="", **place), suffix, command)
    if compiles:
        faults.append(f"{name}: a functor without derivative compiles")
    elif SENTENCE not in said:
        faults.append(f"{name}: no message has the sentence \"{SENTENCE}\": {said[:2000]}")
    return faults


def main():
    compiler, *nvcc = sys.argv[1:]
    faults = faults_on("CPU", ".cpp", [compiler, "-fsyntax-only", "-fopenmp"], header="launch",
                       config=".head_dim = 64", where="cpu")
    if nvcc:
        faults += faults_on("GPU", ".cu", [*nvcc, "-cuda", "-arch=sm_80", "--expt-relaxed-constexpr",
                                           "-o", "trial.ii"], header="launch_cuda",
                            config=".target = backend::cuda_sm80, .type = dtype::bf16, "
                            ".head_dim = 64, .d_q_atomics = true", where="cuda")
    print("\n".join(faults) if faults else f"refused with the sentence on {1 + len(nvcc)} back ends")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
