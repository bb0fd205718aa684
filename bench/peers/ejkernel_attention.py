#!/usr/bin/env python3
"""The library beside ejKernel's flash attention (JAX, its Triton back end) on a GPU: one process, the
same memory, random order.

usage: ejkernel_attention.py LIBRARY [--dims N,...] [--lengths N,...] [--rounds N] [--row NAME]
                             [--seed N] [--output FILE.json]

LIBRARY is libtessera_c.so. ejKernel is asked with the tile that its kernel takes by itself, with the
one its operation's heuristic gives, and with every candidate of its tuner, of which the fastest of
each case is shown. Its calls are jitted, eight to a launch, and read the tensors of PyTorch in place.
Times are the host's, between two waits for the device, over 40 ms or more, for everybody; medians over
rounds. Prints Markdown; what refuses is named below the table."""
import math
import os
import pathlib
import sys
import time
import types

# Otherwise JAX takes three quarters of the device's memory when it starts.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import torch  # noqa: E402

import ejkernel  # noqa: E402
import jax  # noqa: E402
from ejkernel.modules.operations.flash_attention import FlashAttention  # noqa: E402
from ejkernel.ops import FwdParams  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cuda_attention import (HIDDEN, TOKENS, Case, backend_of, begun, geometric, keep, number,  # noqa: E402
                            numbers, parser_of, table, truth_of)

PLATFORM = ejkernel.Platform.TRITON
# Calls of ejKernel in one jitted function: what a launch costs JAX's host side is shared among them.
CALLS = 8
# Milliseconds of a measurement. Its first launch starts some 0.2 ms after the clock.
LEAST = 40.0
DEFAULT = FwdParams(q_blocksize=128, kv_blocksize=128, num_warps=4, num_stages=2)


def kernel():
    return ejkernel.kernel_registry.get("flash_attention", platform=PLATFORM, backend=ejkernel.Backend.GPU)


def tile(params):
    return f"{params.q_blocksize}x{params.kv_blocksize} w{params.num_warps} s{params.num_stages}"


def tiles(q, causal):
    """{text: parameters} of what ejKernel would try, its kernel's own first; and its heuristic's."""
    call = types.SimpleNamespace(kwargs={"query": q, "key": q, "causal": causal, "platform": "triton"})
    operation = FlashAttention()
    heuristic = operation.heuristic_cfg_gpu(call).fwd_params
    tried = [DEFAULT, heuristic, *(one.fwd_params for one in operation.candidate_cfgs_gpu(call))]
    return {tile(one): one for one in tried}, tile(heuristic)


class EjkernelCase(Case):
    """A case with launches of ejKernel, named by their tiles."""

    def __init__(self, library, shape, causal, row):
        super().__init__(library, shape, torch.bfloat16, causal, ("flash",), row)
        torch.cuda.synchronize()
        self.arrays = [jax.dlpack.from_dlpack(one) for one in (self.q, self.k, self.v)]
        self.tiles, self.heuristic = tiles(self.arrays[0], causal)
        self.default = next(iter(self.tiles))
        self.single = {}
        # The kernel's own tile, which may ask for more shared memory than there is, comes last.
        for name, params in reversed(self.tiles.items()):
            try:
                self.launches[name] = [self.compiled(name, params)]
            except Exception as reason:  # whatever a compiler or a driver throws is ejKernel's answer
                self.failures[name] = " ".join(str(reason).split())[:300]

    def compiled(self, name, params):
        """A launch of CALLS calls. They read one q under several names, so that none is left out."""
        q, k, v = self.arrays
        attention, causal = kernel(), self.causal
        # The kernel's own tile is what it takes when it is told nothing.
        told = None if name == self.default else params

        def several(k, v, *queries):
            return [attention(one, k, v, causal=causal, fwd_params=told) for one in queries]
        program = jax.jit(several)
        run = program.lower(k, v, *[q] * CALLS).compile()
        queries = [q] * CALLS

        def launch():
            return run(k, v, *queries)
        launch.calls = CALLS
        self.single[name] = jax.block_until_ready(launch())[0]
        return launch

    def result(self, name):
        return torch.from_dlpack(self.single[name]) if name in self.single else super().result(name)

    def compare(self):
        """{tile: how far its result is from the library's}; a wrong one is not timed. The bound is wide:
        the difference of small tiles grows with the number of keys."""
        ours = self.result("tessera").double()
        far = {name: ((self.result(name).double() - ours).norm() / ours.norm()).item() for name in self.single}
        for name, error in far.items():
            if not error < 0.1:
                del self.launches[name], self.single[name]
                self.failures[name] = f"its result differs by {error:.3g} from the library's"
        return far


def wall(launches, count):
    """Milliseconds of a call on the host's clock, over about `count` of them."""
    launch = launches[0]
    calls = getattr(launch, "calls", 1)
    repeats = max(1, math.ceil(count / calls))
    torch.cuda.synchronize()
    with backend_of(launch):
        begin = time.perf_counter()
        for _ in range(repeats):
            result = launch()
        jax.block_until_ready(result)
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e3 / (repeats * calls)


def measured(library, options, dim, length, causal):
    """Rates of one case, TFLOP/s, and what was refused."""
    heads = HIDDEN // dim
    case = EjkernelCase(library, (TOKENS // length, length, length, heads, heads, dim), causal, options.row)
    case.check("flash")
    far = case.compare()
    times = case.milliseconds(options.rounds, wall, LEAST)
    rate = {name: case.flops / ms * 1e-9 for name, ms in times.items()}
    tried = {name: rate.get(name, math.nan) for name in case.tiles}
    best = max(case.single, key=tried.get, default=None)
    return {"head_dim": dim, "length": length, "causal": causal, "row": case.row, "tessera": rate["tessera"],
            "flash": rate["flash"], "default": tried[case.default], "heuristic": tried[case.heuristic],
            "best": tried.get(best, math.nan), "best_tile": best or "-", "tiles": tried,
            "difference": far, "refused": case.failures}


def grid(library, options):
    rows, found = [], []
    for dim in options.dims:
        for length in options.lengths:
            for causal in (False, True):
                one = measured(library, options, dim, length, causal)
                found.append(one)
                rows.append([str(dim), str(length), "causal" if causal else "full", one["row"],
                             *(number(one[name]) for name in ("tessera", "flash", "default", "heuristic", "best")),
                             one["best_tile"], number(one["tessera"] / one["default"], 2),
                             number(one["tessera"] / one["best"], 2)])
                print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    print("\n## Forward, bf16, 16k tokens, hidden 2048: TFLOP/s")
    table(["head dim", "length", "mask", "row", "tessera", "flash", "ejKernel, its kernel's tile",
           "its heuristic's", "best of its tuner's", "which", "tessera / its kernel's", "tessera / its best"],
          rows)
    for name, said in (("default", "its kernel's own tile"), ("best", "the best of its tuner's candidates")):
        ratios = [one["tessera"] / one[name] for one in found if not math.isnan(one[name])]
        if ratios:
            print(f"\n{len(ratios)} cases against {said}: geometric mean {geometric(ratios):.3f}, least "
                  f"{min(ratios):.3f}, {sum(ratio < 1 for ratio in ratios)} below 1.")
    name, error, one = max(((name, error, one) for one in found for name, error in one["difference"].items()),
                           key=lambda entry: entry[1])
    print(f"\nLargest relative difference from the library's result: {error:.2g}, head dim {one['head_dim']}, "
          f"length {one['length']}, tile {name}.")
    refusals = {}
    for one in found:
        for name, reason in one["refused"].items():
            refusals.setdefault((one["head_dim"], name), []).append(reason)
    for (dim, name), reasons in refusals.items():
        print(f"\nRefused, head dim {dim}, {name}, {len(reasons)} cases; the first: {reasons[0]}")
    return found


def errors(library, options):
    rows, found = [], []
    for dim in options.dims:
        for causal in (False, True):
            case = EjkernelCase(library, (1, 2048, 2048, 8, 8, dim), causal, options.row)
            want = truth_of(case.q, case.k, case.v, causal)
            largest = want.abs().amax(-1, keepdim=True)
            one, cells = {"head_dim": dim, "causal": causal}, []
            for name in ("tessera", "flash", case.default, case.heuristic):
                if name not in case.launches:
                    cells.append("-")
                    continue
                difference = (case.result(name).double() - want).abs()
                norm, worst = (difference.norm() / want.norm()).item(), (difference / largest).max().item()
                one[name] = {"norm": norm, "worst": worst}
                cells.append(f"{norm:.2e}, {worst:.1e}")
            found.append(one)
            rows.append([str(dim), "causal" if causal else "full", *cells])
    print("\n## Error against float64, bf16, 2048 tokens, 8 heads: relative norm, largest over the row's largest")
    table(["head dim", "mask", "tessera", "flash", "ejKernel, its kernel's tile", "its heuristic's"], rows)
    return found


def main():
    parser = parser_of(__doc__, rounds=7)
    parser.add_argument("--dims", default="64,128,256", type=numbers)
    options = parser.parse_args()
    library, limits, about = begun(options)
    about |= {"ejkernel": ejkernel.__version__, "jax": jax.__version__}
    print(f"tessera {library.version}, ejKernel {ejkernel.__version__}, JAX {jax.__version__}, PyTorch "
          f"{torch.__version__}, {torch.cuda.get_device_name(0)}. Matrix products of this run: bf16 "
          f"{limits['matmul_bf16_tflops']:.0f} TFLOP/s.")
    about["grid"] = grid(library, options)
    about["error"] = errors(library, options)
    keep(about, options)


if __name__ == "__main__":
    main()
