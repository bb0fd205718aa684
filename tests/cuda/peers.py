#!/usr/bin/env python3
"""The CUDA rows beside PyTorch's SDPA back ends, in one process: peers.py LIBRARY [grid|decode|f32|all].

Random normal bf16 inputs, 16k tokens a call, hidden 2048; medians over batches of launches of 2 ms
or more, the candidates of a case in random order. Every result is compared with that of PyTorch's flash back end.
"""
import ctypes
import math
import random
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


class Call(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("q", "k", "v", "out", "lse")] + [
        (name, ctypes.c_int64) for name in ("batch", "q_len", "kv_len")] + [
        (name, ctypes.c_int32) for name in ("q_heads", "kv_heads", "head_dim", "v_head_dim")] + [
        ("scale", ctypes.c_float), ("causal", ctypes.c_int32), ("window_left", ctypes.c_int64)]


LIBRARY = ctypes.CDLL(sys.argv[1])
SMS = torch.cuda.get_device_properties(0).multi_processor_count
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
PEERS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
         "efficient": SDPBackend.EFFICIENT_ATTENTION}


def planned(row, q, k, v, out, causal):
    """A function that launches the row on [B, S, H, D] tensors."""
    b, sq, hq, d = q.shape
    call = Call(q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), None, b, sq, k.shape[1], hq,
                k.shape[2], d, v.shape[3], 1 / math.sqrt(d), int(causal), -1)
    message = ctypes.create_string_buffer(256)
    size = ctypes.c_size_t(0)

    def launch(workspace):
        code = LIBRARY.device_bench_launch(
            row.encode(), int(q.dtype == torch.float16), ctypes.byref(call), SMS,
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), workspace,
            ctypes.byref(size), message, ctypes.c_size_t(256))
        if code:
            raise RuntimeError(message.value.decode())
    launch(None)
    memory = torch.empty(size.value + 256, dtype=torch.uint8, device="cuda")
    return lambda: launch(ctypes.c_void_p(memory.data_ptr()))


def peer(name, q, k, v, causal):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    gqa = q.shape[1] != k.shape[1]

    def launch():
        with sdpa_kernel(PEERS[name]):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=gqa)
    return launch


def median_ms(launch, most_ms=80):
    """Milliseconds of one launch: medians over batches long enough to hide what a launch costs the host."""
    def batch(count):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            launch()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / count
    batch(3)
    count = max(1, math.ceil(2.0 / batch(3)))
    times = []
    while len(times) < 15 and sum(times) * count < most_ms:
        times.append(batch(count))
    return sorted(times)[len(times) // 2]


def compare(rows, shape, causal):
    """Milliseconds by candidate, and the largest difference of a row from PyTorch's flash."""
    b, sq, sk, hq, hkv, d = shape
    q = torch.randn(b, sq, hq, d, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(b, sk, hkv, d, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(q)
    candidates = {row: planned(row, q, k, v, out, causal) for row in rows}
    candidates.update({name: peer(name, q, k, v, causal) for name in PEERS})
    want = candidates["flash"]().transpose(1, 2).float()
    worst = 0.0
    for row in rows:
        out.fill_(float("nan"))
        candidates[row]()
        error = (out.float() - want).norm() / want.norm()
        worst = max(worst, error.item()) if not math.isnan(error.item()) else math.nan
    order = list(candidates)
    random.shuffle(order)
    times = {}
    for name in order:
        try:
            times[name] = median_ms(candidates[name])
        except RuntimeError as reason:
            times[name] = math.nan
            pass
    return times, worst


def grid(rows_of):
    print("| head dim | length | mask | " + " | ".join(["row", "TFLOP/s", *PEERS, "row / flash"]) + " |")
    print("|---|---|---|---|---|" + "---|" * (len(PEERS) + 1))
    ratios = []
    for d in (64, 128, 256):
        for s in LENGTHS:
            for causal in (False, True):
                shape = (16384 // s, s, s, 2048 // d, 2048 // d, d)
                times, worst = compare(rows_of[d], shape, causal)
                flops = 4 * shape[0] * shape[3] * s * s * d / (2 if causal else 1)
                best = min(rows_of[d], key=lambda row: times[row])
                rate = {name: flops / ms * 1e-9 for name, ms in times.items()}
                if s not in (1024, 4096):
                    ratios.append(rate[best] / rate["flash"])
                print(f"| {d} | {s} | {'causal' if causal else 'full'} | {best} | {rate[best]:.0f} | "
                      + " | ".join(f"{rate[name]:.0f}" for name in PEERS)
                      + f" | {rate[best] / rate['flash']:.2f} |"
                      + (f" error {worst:.1e}" if not worst < 5e-3 else ""), flush=True)
    print(f"geometric mean of the 24 cases without 1024 and 4096: "
          f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}, least {min(ratios):.3f}")


def decode():
    size = 1 << 30
    a, b = (torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(2))
    ms = median_ms(lambda: b.copy_(a))
    words = torch.randn(size // 2, device="cuda", dtype=torch.bfloat16)
    read_ms = median_ms(lambda: words.sum())
    copied = 2 * size / ms * 1e-6
    print(f"copy {copied:.0f} GB/s, read (torch sum) {size / read_ms * 1e-6:.0f} GB/s")
    print("| decode | row | GB/s | share of copy | " + " | ".join(PEERS) + " |")
    print("|---|---|---|---|" + "---|" * len(PEERS))
    for d, batch, keys, hq, hkv in ((128, 32, 8192, 64, 8), (128, 1, 32768, 64, 8), (128, 8, 2048, 64, 8),
                                    (128, 128, 2048, 32, 8), (64, 32, 8192, 64, 8)):
        row = f"d{d}_decode"
        times, worst = compare([row], (batch, 1, keys, hq, hkv, d), False)
        traffic = 2 * 2 * batch * keys * hkv * d
        rate = {name: traffic / ms * 1e-6 for name, ms in times.items()}
        print(f"| GQA {hq}/{hkv} d{d} B{batch} kv {keys} | {row} | {rate[row]:.0f} | {rate[row] / copied:.2f} | "
              + " | ".join(f"{rate[name]:.0f}" for name in PEERS) + " |"
              + (f" error {worst:.1e}" if not worst < 5e-3 else ""), flush=True)


print(torch.__version__, "cuDNN", torch.backends.cudnn.version(), torch.cuda.get_device_name(0))
torch.manual_seed(1)
WHAT = sys.argv[2] if len(sys.argv) > 2 else "all"
if WHAT in ("grid", "all"):
    grid({64: ["d64"], 128: ["d128"], 256: ["d256"]})
if WHAT in ("decode", "all"):
    decode()
