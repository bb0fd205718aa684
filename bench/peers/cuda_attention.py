#!/usr/bin/env python3
"""The library beside PyTorch's back ends of scaled_dot_product_attention on a GPU: one process, the
same tensors, random order, the ceilings of the same run.

usage: cuda_attention.py LIBRARY [--part grid,decode,f32,error,host] [--lengths N,...] [--row NAME]
                         [--rounds N] [--seed N] [--output FILE.json]

LIBRARY is libtessera_c.so. Inputs are random normal. Times are medians over rounds; in a round every
candidate of a case is timed once, in a new order, over launches of 2 ms or more. A rate counts what
the mask leaves: 4 * D for each visible (query, key) pair and head; decode counts the bytes of keys
and values. Prints Markdown."""
import argparse
import contextlib
import json
import math
import pathlib
import random
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from tessera_c import Library, Refused  # noqa: E402

PEERS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
         "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}
TOKENS, HIDDEN = 16384, 2048
PARTS = ("grid", "decode", "f32", "error", "host")
# Batch, keys, query heads, key/value heads, head dim of one query a sequence.
DECODE = ((32, 8192, 64, 8, 128), (1, 32768, 64, 8, 128), (8, 2048, 64, 8, 128), (128, 2048, 32, 8, 128),
          (32, 8192, 64, 8, 64), (16, 8192, 32, 32, 128))
# So many bytes of keys and values are read in turn that none of them are still in the cache.
COLD_BYTES = 1 << 30


def drawn(*shape, dtype):
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def peer(name, q, k, v, causal):
    """A launch of a back end; its layout is [B, H, S, D], the memory stays [B, S, H, D]."""
    q, k, v = (one.transpose(1, 2) for one in (q, k, v))
    grouped = q.shape[1] != k.shape[1]

    def launch():
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
    launch.backend = PEERS[name]
    return launch


def backend_of(launch):
    """The scope in which PyTorch takes the back end of a launch."""
    backend = getattr(launch, "backend", None)
    return contextlib.nullcontext() if backend is None else sdpa_kernel(backend)


class Case:
    """One problem: its candidates, each a list of launches that differ in keys and values."""

    def __init__(self, library, shape, dtype, causal, peers, row=None, copies=1):
        batch, q_len, kv_len, heads, kv_heads, dim = shape
        self.q = drawn(batch, q_len, heads, dim, dtype=dtype)
        self.out = torch.empty_like(self.q)
        pairs = [tuple(drawn(batch, kv_len, kv_heads, dim, dtype=dtype) for _ in "kv") for _ in range(copies)]
        self.k, self.v = pairs[0]
        self.causal, self.failures = causal, {}
        self.launches = {name: [peer(name, self.q, k, v, causal) for k, v in pairs] for name in peers}
        plan = library.plan("flash_attention", {"causal": causal}, row=row, q=self.q, k=self.k, v=self.v,
                            out=self.out, stream=torch.cuda.current_stream().cuda_stream)
        self.row = plan.row
        self.launches["tessera"] = [plan.launcher(q=self.q, k=k, v=v, out=self.out) for k, v in pairs]
        seen = q_len * kv_len - (q_len * (q_len - 1) // 2 if causal else 0)
        self.flops = 4.0 * batch * heads * seen * dim
        self.bytes = 2.0 * self.k.numel() * self.k.element_size()

    def result(self, name):
        """What a candidate computes, [B, S, H, D]."""
        if name == "tessera":
            self.out.fill_(math.nan)
            self.launches[name][0]()
            return self.out
        with backend_of(self.launches[name][0]):
            return self.launches[name][0]().transpose(1, 2)

    def check(self, beside="math"):
        """The library's result against another's: a wrong one is not worth timing."""
        want = self.result(beside).double()
        error = (self.result("tessera").double() - want).norm() / want.norm()
        if not error < 2e-2:
            sys.exit(f"{self.row}: differs by {error:.3g} from the back end {beside}")

    def milliseconds(self, rounds, clock=None, least=2.0):
        """{candidate: median of a launch}; NaN where a back end refuses. `clock` is timed or like it, and
        measures over `least` milliseconds."""
        batches, clock = {}, clock or timed
        for name in self.launches:
            try:
                batches[name] = batch_of(self.launches[name], clock, least)
            except RuntimeError as reason:
                if isinstance(reason, Refused) or "out of memory" in str(reason):
                    raise
                self.failures[name] = str(reason).splitlines()[0]
        times = {name: [] for name in batches}
        for _ in range(rounds):
            order = list(batches)
            random.shuffle(order)
            for name in order:
                times[name].append(clock(self.launches[name], batches[name]))
        medians = {name: statistics.median(all_of_it) for name, all_of_it in times.items()}
        return {name: medians.get(name, math.nan) for name in self.launches}


def timed(launches, count):
    """Milliseconds of a launch, over `count` of them in a row."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with backend_of(launches[0]):
        begin.record()
        for index in range(count):
            launches[index % len(launches)]()
        end.record()
    end.synchronize()
    return begin.elapsed_time(end) / count


def batch_of(launches, clock=timed, least=2.0):
    """How many launches take `least` milliseconds; warms up."""
    clock(launches, 3)
    return max(1, math.ceil(least / clock(launches, 3)))


def ceilings(rounds):
    """GB/s of a copy (read and written) and of a read, TFLOP/s of matrix products of random data."""
    words = drawn(1 << 29, dtype=torch.bfloat16)
    other = torch.empty_like(words)
    factors = {name: [drawn(8192, 8192, dtype=dtype) for _ in range(2)]
               for name, dtype in (("bf16", torch.bfloat16), ("f32", torch.float32))}
    work = {"copy": lambda: other.copy_(words), "read": words.sum,
            "bf16": lambda: torch.matmul(*factors["bf16"]), "f32": lambda: torch.matmul(*factors["f32"])}
    found = {}
    for name, launch in work.items():
        count = batch_of([launch])
        found[name] = statistics.median(timed([launch], count) for _ in range(rounds))
    size = words.numel() * words.element_size()
    return {"copy_gbytes": 2 * size / found["copy"] * 1e-6, "read_gbytes": size / found["read"] * 1e-6,
            "matmul_bf16_tflops": 2 * 8192**3 / found["bf16"] * 1e-9,
            "matmul_f32_tflops": 2 * 8192**3 / found["f32"] * 1e-9}


def table(head, rows):
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def number(value, digits=0):
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def geometric(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def grid(library, options, limits):
    peers, rows, found = ("flash", "cudnn", "efficient"), [], []
    for dim in (64, 128, 256):
        for length in options.lengths:
            for causal in (False, True):
                heads = HIDDEN // dim
                case = Case(library, (TOKENS // length, length, length, heads, heads, dim), torch.bfloat16,
                            causal, peers, options.row)
                case.check("flash")
                times = case.milliseconds(options.rounds)
                rate = {name: case.flops / ms * 1e-9 for name, ms in times.items()}
                found.append({"head_dim": dim, "length": length, "causal": causal, "row": case.row, **rate})
                rows.append([str(dim), str(length), "causal" if causal else "full", case.row,
                             number(rate["tessera"]), *(number(rate[name]) for name in peers),
                             number(rate["tessera"] / rate["flash"], 2),
                             number(100 * rate["tessera"] / limits["matmul_bf16_tflops"]) + " %"])
    print("\n## Forward, bf16, 16k tokens, hidden 2048: TFLOP/s")
    table(["head dim", "length", "mask", "row", "tessera", *peers, "tessera / flash", "of matmul"], rows)
    ratios = [one["tessera"] / one["flash"] for one in found]
    print(f"\n{len(ratios)} cases against flash: geometric mean {geometric(ratios):.3f}, least "
          f"{min(ratios):.3f}.")
    return found


def decode(library, options, limits):
    peers, rows, found = ("flash", "cudnn"), [], []
    for batch, keys, heads, kv_heads, dim in DECODE:
        once = 4.0 * batch * keys * kv_heads * dim
        copies = max(1, math.ceil(COLD_BYTES / once)) if once < COLD_BYTES else 1
        case = Case(library, (batch, 1, keys, heads, kv_heads, dim), torch.bfloat16, False, peers,
                    options.row, copies)
        case.check("flash")
        times = case.milliseconds(options.rounds)
        rate = {name: case.bytes / ms * 1e-6 for name, ms in times.items()}
        found.append({"batch": batch, "keys": keys, "heads": heads, "kv_heads": kv_heads, "head_dim": dim,
                      "row": case.row, "us": times["tessera"] * 1e3, **rate})
        rows.append([f"{heads}/{kv_heads} d{dim} B{batch} kv {keys}", case.row,
                     number(times["tessera"] * 1e3, 1), number(rate["tessera"]),
                     *(number(rate[name]) for name in peers),
                     number(100 * rate["tessera"] / limits["read_gbytes"]) + " %"])
    print("\n## Decode, bf16, one query a sequence: GB/s of keys and values")
    table(["heads", "row", "us", "tessera", *peers, "of read"], rows)
    return found


def exact(library, options, limits):
    """f32 against PyTorch's math path, whose products are float32 too."""
    peers, rows, found = ("math", "efficient"), [], []
    for dim in (64, 128):
        for length in (512, 2048, 4096):
            for causal in (False, True):
                heads = HIDDEN // dim
                case = Case(library, (TOKENS // length, length, length, heads, heads, dim), torch.float32,
                            causal, peers, options.row)
                case.check("math")
                times = case.milliseconds(options.rounds)
                rate = {name: case.flops / ms * 1e-9 for name, ms in times.items()}
                found.append({"head_dim": dim, "length": length, "causal": causal, "row": case.row, **rate})
                rows.append([str(dim), str(length), "causal" if causal else "full", case.row,
                             number(rate["tessera"], 1), *(number(rate[name], 1) for name in peers),
                             number(rate["tessera"] / rate["math"], 2),
                             number(100 * rate["tessera"] / limits["matmul_f32_tflops"]) + " %"])
                del case
                torch.cuda.empty_cache()
    print("\n## Forward, f32, 16k tokens, hidden 2048: TFLOP/s")
    table(["head dim", "length", "mask", "row", "tessera", *peers, "tessera / math", "of f32 matmul"], rows)
    return found


def truth_of(q, k, v, causal):
    """The definition in float64, [B, S, H, D]."""
    q, k, v = (one.double().transpose(1, 2) for one in (q, k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores.masked_fill_(hidden, -math.inf)
    return (torch.softmax(scores, -1) @ v).transpose(1, 2)


def errors(library, options, _):
    """Of the same inputs against float64: relative norm, and largest error over the row's largest."""
    rows, found = [], []
    kinds = {torch.bfloat16: ("flash", "cudnn"), torch.float16: ("flash", "cudnn"),
             torch.float32: ("math", "efficient")}
    for dtype, peers in kinds.items():
        for dim in (64, 128, 256):
            for causal in (False, True):
                case = Case(library, (1, 2048, 2048, 8, 8, dim), dtype, causal, peers, options.row)
                want = truth_of(case.q, case.k, case.v, causal)
                largest = want.abs().amax(-1, keepdim=True)
                cells, one = [], {"dtype": str(dtype), "head_dim": dim, "causal": causal}
                for name in ("tessera", *peers):
                    try:
                        difference = (case.result(name).double() - want).abs()
                    except RuntimeError:
                        cells.append("-")
                        continue
                    norm = (difference.norm() / want.norm()).item()
                    worst = (difference / largest).max().item()
                    one[name] = {"norm": norm, "worst": worst}
                    cells.append(f"{norm:.2e}, {worst:.1e}")
                found.append(one)
                cells += [""] * (3 - len(cells))
                rows.append([str(dtype).removeprefix("torch."), str(dim), "causal" if causal else "full",
                             *cells])
    print("\n## Error against float64, 2048 tokens, 8 heads: relative norm, largest over the row's largest")
    print("\nThe peers are flash and cudnn, for float32 math and efficient.")
    table(["dtype", "head dim", "mask", "tessera", "first peer", "second peer"], rows)
    return found


def host(library, options, _):
    """Host time of a planned run, which returns when its work is in the stream."""
    found, rows = {}, []
    for name, shape in (("prompt", (1, 128, 128, 8, 8, 128)), ("decode", (4, 1, 2048, 32, 8, 128))):
        case = Case(library, shape, torch.bfloat16, False, ("flash",), options.row)
        launch, nothing = case.launches["tessera"][0], library.c.tessera_c_version
        times = {}
        for what, call in (("run", launch), ("an empty call", nothing), ("flash", None)):
            if call is None:
                call = case.launches["flash"][0]
            samples = []
            with backend_of(call):
                for _ in range(40):
                    torch.cuda.synchronize()
                    begin = time.perf_counter()
                    for _ in range(200):
                        call()
                    samples.append((time.perf_counter() - begin) / 200 * 1e6)
            times[what] = statistics.median(samples)
        found[name] = times
        rows.append([name, case.row, *(number(times[what], 2) for what in ("run", "an empty call", "flash"))])
    print("\n## Host time of a launch, us, called from Python")
    table(["call", "row", "planned run through ctypes", "an empty call through ctypes",
           "scaled_dot_product_attention, flash"], rows)
    return found


def parser_of(doc, rounds):
    """The arguments that every bench beside a GPU's peers takes; `doc` has its usage as second paragraph."""
    parser = argparse.ArgumentParser(usage=doc.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("library")
    parser.add_argument("--lengths", default="512,2048,8192,16384", type=numbers)
    parser.add_argument("--row")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output")
    return parser


def numbers(text):
    return [int(one) for one in text.split(",")]


def begun(options):
    """The library, the ceilings of this run, and what the JSON says first."""
    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU")
    random.seed(options.seed)
    torch.manual_seed(options.seed)
    library = Library(options.library)
    limits = ceilings(options.rounds)
    return library, limits, {"tessera": library.version, "device": torch.cuda.get_device_name(0),
                             "torch": torch.__version__, "seed": options.seed, "rounds": options.rounds,
                             "ceilings": limits}


def keep(about, options):
    if options.output:
        pathlib.Path(options.output).write_text(json.dumps(about, indent=1), encoding="utf-8")


def main():
    parser = parser_of(__doc__, rounds=11)
    parser.add_argument("--part", default=",".join(PARTS))
    options = parser.parse_args()
    parts = options.part.split(",")
    for one in parts:
        if one not in PARTS:
            sys.exit(f"--part: '{one}' is not one of {', '.join(PARTS)}")
    library, limits, about = begun(options)
    about["cudnn"] = torch.backends.cudnn.version()
    print(f"tessera {library.version}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
          f"{torch.cuda.get_device_name(0)}. Ceilings of this run: copy {limits['copy_gbytes']:.0f} GB/s, read "
          f"{limits['read_gbytes']:.0f} GB/s, matmul bf16 {limits['matmul_bf16_tflops']:.0f} TFLOP/s, f32 "
          f"{limits['matmul_f32_tflops']:.0f} TFLOP/s.")
    functions = {"grid": grid, "decode": decode, "f32": exact, "error": errors, "host": host}
    for one in parts:
        about[one] = functions[one](library, options, limits)
        torch.cuda.empty_cache()
    keep(about, options)


if __name__ == "__main__":
    main()
