#!/usr/bin/env python3
"""Times PyTorch's CPU scaled_dot_product_attention on the problems of a bench record.

usage: torch_sdpa.py RECORD.json

RECORD.json is what bench_flash_attention writes with --benchmark_out. Problems that the PyTorch
function cannot express are passed over.
"""
import json
import re
import statistics
import sys
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
SHAPE = re.compile(r"(\w+)=\[([\d,]+)\](\w+)?$")


def parse(problem):
    """(q shape, k shape, dtype, causal), or None if PyTorch cannot express the problem."""
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
    if set(shapes) != {"q", "k"} or len(shapes["q"]) != 4 or dtype is None:
        return None
    q_len, kv_len = shapes["q"][1], shapes["k"][1]
    if causal and q_len not in (1, kv_len):
        return None  # PyTorch aligns the diagonal to the top left
    return shapes["q"], shapes["k"], dtype, causal and q_len > 1


def median_seconds(q_shape, k_shape, dtype, causal):
    def heads_first(shape):
        return torch.randn(shape, dtype=torch.float32).to(dtype).transpose(1, 2)

    q, k, v = heads_first(q_shape), heads_first(k_shape), heads_first(k_shape)
    grouped = q_shape[2] != k_shape[2]
    seconds = []
    for _ in range(8):
        begin = time.perf_counter()
        scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[1:])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        record = json.load(file)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{'ours us':>12} {'torch us':>12} {'ratio':>6}  problem")
    for case in record["benchmarks"]:
        problem = case["name"].split("/", 1)[1].removesuffix("/manual_time")
        parsed = parse(problem)
        if parsed is None or "median_us" not in case:
            continue
        peer = median_seconds(*parsed) * 1e6
        print(f"{case['median_us']:12.1f} {peer:12.1f} {peer / case['median_us']:6.2f}  {problem}")


if __name__ == "__main__":
    main()
