#!/usr/bin/env python3
"""The C interface from Python's ctypes, without anything compiled: loaded.py LIBRARY."""
import array
import ctypes
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench/peers"))
from tessera_c import Library, Refused  # noqa: E402


def attention(q, k, v, scale):
    """One query row and head against rows of k and v."""
    weights = [math.exp(scale * sum(a * b for a, b in zip(q, row))) for row in k]
    total = sum(weights)
    return [sum(w * row[i] for w, row in zip(weights, v)) / total for i in range(len(v[0]))]


def main():
    library = Library(sys.argv[1])
    known = library.interface.constants

    def view_of(values, extent):
        view = library.interface.structs["tessera_tensor"](
            dtype=known["TESSERA_F32"], data=values.buffer_info()[0], rank=len(extent),
            flags=known["TESSERA_CONTIGUOUS"])
        view.extent[:len(extent)] = extent
        return view

    rows, keys, dim, scale = 3, 11, 24, 0.3
    q = array.array("f", [math.sin(i) for i in range(rows * dim)])
    k = array.array("f", [math.cos(3 * i) for i in range(keys * dim)])
    v = array.array("f", [math.sin(5 * i + 1) for i in range(keys * dim)])
    out = array.array("f", [math.nan] * (rows * dim))
    tensors = {"q": view_of(q, [1, rows, 1, dim]), "k": view_of(k, [1, keys, 1, dim]),
               "v": view_of(v, [1, keys, 1, dim]), "out": view_of(out, [1, rows, 1, dim])}

    def part(values, at):
        return values[at * dim:(at + 1) * dim]

    def check(what, wanted):
        """Compares the output with the definition, and overwrites it."""
        worst = max(abs(out[i * dim + x] - wanted[i][x]) for i in range(rows) for x in range(dim))
        if not worst < 1e-5:
            sys.exit(f"{what}: the worst difference is {worst}")
        for i in range(len(out)):
            out[i] = math.nan

    every = [attention(part(q, i), [part(k, j) for j in range(keys)], [part(v, j) for j in range(keys)],
                       scale) for i in range(rows)]
    options = {"softmax_scale": scale, "causal": False, "window_left": None}
    for operation in ("flash_attention", "attention", "scaled_dot_product_attention"):
        library.call(operation, options, **tensors)
        check(f"call of {operation}", every)
        plan = library.plan(operation, options, **tensors)
        plan.run(**tensors)
        check(f"plan of {operation}", every)
    library.call("attention", {"window_left": 0, "window_right": 0, "causal_alignment": "top_left"}, **tensors)
    check("a window of one key", [part(v, i) for i in range(rows)])
    mean = view_of(out, [1, dim])
    library.call("mean_pooling", x=view_of(q, [1, rows, dim]), out=mean)
    if any(abs(out[x] - sum(part(q, i)[x] for i in range(rows)) / rows) > 1e-6 for x in range(dim)):
        sys.exit("mean_pooling: differs from the mean")
    tensors["k"].extent[3] = dim - 1
    try:
        library.call("flash_attention", **tensors)
        sys.exit("a call with head dims that differ was not refused")
    except Refused as refused:
        if refused.code != known["TESSERA_INVALID_ARGUMENT"] or str(refused) != "k: head_dim is 23, q has 24":
            sys.exit(f"refusal: code {refused.code}, {refused}")
    for name, struct in library.interface.structs.items():
        if struct.size.offset != 0 or ctypes.sizeof(struct) % 8 != 0:
            sys.exit(f"{name}: has {ctypes.sizeof(struct)} bytes, its size is at {struct.size.offset}")
    print(f"tessera {library.version} from ctypes: {', '.join(library.operations)}; {plan.row}")


if __name__ == "__main__":
    main()
