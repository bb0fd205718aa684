#!/usr/bin/env python3
"""Times PyTorch's CPU scaled_dot_product_attention on problem texts read from standard input and
answers each with one line of JSON in the form of bench_flash_attention --problems.

Inputs are those of bench/support/workload.hpp (SplitMix64, seed 1), so that errors against the
definition in float64 compare. Problems that the function cannot express are answered with a
failure. Rounds during which threads of this process waited for a core are left out."""
import glob
import json
import os
import re
import statistics
import sys
import time

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
SHAPE = re.compile(r"(\w+)=\[([\d,]+)\](\w+)?$")
MOST_DRAWN = 1 << 22
COLD_BYTES, MOST_COPIES = 96 << 20, 64
SECONDS, MOST_SECONDS, LEAST_ROUNDS = 1.0, 3.0, 7


def parse(problem):
    """(shapes, dtype, causal), or None if PyTorch cannot express the problem."""
    shapes, dtype, causal = {}, None, False
    for field in problem.split()[1:]:
        shape = SHAPE.match(field)
        if shape:
            shapes[shape[1]] = [int(extent) for extent in shape[2].split(",")]
            dtype = dtype or DTYPES.get(shape[3])
        elif field == "causal=true":
            causal = True
        else:
            return None
    shapes.setdefault("v", shapes.get("k"))
    if set(shapes) != {"q", "k", "v"} or len(shapes["q"]) != 4 or dtype is None:
        return None
    return shapes, dtype, causal


class Draws:
    """The stream of support::random_source(1).bell()."""

    def __init__(self):
        self.drawn = 0

    def tensor(self, shape, dtype):
        count = int(np.prod(shape))
        fresh = min(count, MOST_DRAWN)
        with np.errstate(over="ignore"):
            word = np.uint64(1) + (np.arange(1, fresh + 1, dtype=np.uint64)
                                   + np.uint64(self.drawn)) * np.uint64(0x9E3779B97F4A7C15)
            word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            word ^= word >> np.uint64(31)
        self.drawn += fresh
        total = sum((word >> np.uint64(16 * part)) & np.uint64(0xFFFF) for part in range(4))
        uniform = total.astype(np.float32) * np.float32(2.0**-16)
        value = (uniform - np.float32(2)) * np.float32(1.7320508)
        whole = np.resize(value, count).reshape(shape)
        return torch.from_numpy(whole).to(dtype)


def spread(count, size):
    count = min(count, size)
    return sorted({(size - 1) * n // (count - 1) if count > 1 else size - 1 for n in range(count)})


def error_of(out, q, k, v, causal):
    """Largest error of sampled rows, scaled by the row's largest value, against float64."""
    batch, q_len, heads, dim = q.shape
    kv_len, group = k.shape[1], heads // k.shape[2]
    want, have = [], []
    for b in spread(2, batch):
        for h in spread(2, heads):
            keys, values = k[b, :, h // group].double(), v[b, :, h // group].double()
            for i in spread(4, q_len):
                seen = i + kv_len - q_len + 1 if causal else kv_len
                score = keys[:seen] @ q[b, i, h].double() / dim**0.5
                want.append(torch.softmax(score, 0) @ values[:seen])
                have.append(out[b, i, h].double())
    want, have = torch.stack(want), torch.stack(have)
    scale = want.abs().amax(1, keepdim=True).clamp(min=0.01 * want.abs().max().item())
    return ((have - want).abs() / scale).max().item()


def waited():
    """Seconds that threads of this process waited for a core."""
    total = 0.0
    for path in glob.glob("/proc/self/task/*/schedstat"):
        try:
            with open(path, encoding="ascii") as file:
                total += int(file.read().split()[1]) * 1e-9
        except (OSError, IndexError):
            pass
    return total


def rounds_of(call, group):
    """[(seconds of a call, clean)] of rounds of `group` calls."""
    threads, done, begin = torch.get_num_threads(), [], time.perf_counter()
    while True:
        spent, clean = time.perf_counter() - begin, sum(ok for _, ok in done)
        if (spent > SECONDS and clean >= LEAST_ROUNDS) or (spent > MOST_SECONDS and len(done) >= 3):
            return done
        lost, start, calls = waited(), time.perf_counter(), []
        for _ in range(group):
            before = time.perf_counter()
            call()
            calls.append(time.perf_counter() - before)
        wall = time.perf_counter() - start
        done.append((statistics.median(calls), waited() - lost <= 0.01 * wall * threads))


def measure(problem):
    parsed = parse(problem)
    if parsed is None:
        return {"failure": "not expressed here"}
    shapes, dtype, causal = parsed
    draws = Draws()
    q, k, v = (draws.tensor(shapes[name], dtype) for name in "qkv")
    batch, q_len, heads, dim = q.shape
    kv_len, grouped = k.shape[1], heads != k.shape[2]
    options = {"enable_gqa": grouped}
    if causal and q_len == kv_len:
        options["is_causal"] = True  # the diagonal starts at the top left, here the same
    elif causal and q_len > 1:
        options["attn_mask"] = torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)
    once = (k.numel() + v.numel()) * k.element_size()
    copies = min(MOST_COPIES, 1 + (COLD_BYTES // once if q_len == 1 else 0))
    heads_first = [tensor.transpose(1, 2) for tensor in (q, k, v)]
    pieces = [heads_first[1:]]
    pieces += [[t.clone().transpose(1, 2) for t in (k, v)] for _ in range(copies - 1)]
    turn = 0

    def call():
        nonlocal turn
        turn += 1
        return scaled_dot_product_attention(heads_first[0], *pieces[turn % copies], **options)

    with torch.inference_mode():
        out = call().transpose(1, 2)
        error = error_of(out, q, k, v, causal)
        begin = time.perf_counter()
        call()
        done = rounds_of(call, max(1, min(256, int(3e-3 / (time.perf_counter() - begin)))))
    clean = [seconds for seconds, ok in done if ok]
    disturbed = len(clean) < 3
    seconds = statistics.median([each for each, _ in done] if disturbed else clean)
    pairs = q_len * kv_len - (q_len * (q_len - 1) // 2 if causal else 0)
    flops = 2.0 * batch * heads * pairs * (dim + v.shape[3])
    moved = once + q.numel() * q.element_size() * (1 + v.shape[3] / dim)
    answer = {"row": f"torch {torch.__version__}", "median_us": seconds * 1e6, "rounds": len(done),
              "flops": flops, "bytes": moved, "GFLOP/s": flops / seconds * 1e-9,
              "GB/s": moved / seconds * 1e-9, "error": error}
    if disturbed:
        answer["disturbed"] = 1
    elif len(clean) < len(done):
        answer["dropped_rounds"] = len(done) - len(clean)
    return answer


def main():
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
    for line in sys.stdin:
        problem = line.split("#")[0].strip()
        if problem:
            print(json.dumps({"case": "problems/" + problem, **measure(problem)}), flush=True)


if __name__ == "__main__":
    main()
