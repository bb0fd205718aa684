#!/usr/bin/env python3
"""The C interface from Python's ctypes, without anything compiled: loaded.py LIBRARY."""
import array
import ctypes
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench/peers"))
from tessera_c import SOFTMAX_SCALE, Args, Options, Status, Tensor  # noqa: E402

F32, CONTIGUOUS, INVALID_ARGUMENT = 1, 2, 1


def view_of(values, extent):
    made = Tensor(dtype=F32, data=values.buffer_info()[0], rank=len(extent), flags=CONTIGUOUS)
    made.extent[:len(extent)] = extent
    return made


def attention(q, k, v, scale):
    """One query row and head against rows of k and v."""
    weights = [math.exp(scale * sum(a * b for a, b in zip(q, row))) for row in k]
    total = sum(weights)
    return [sum(w * row[i] for w, row in zip(weights, v)) / total for i in range(len(v[0]))]


def main():
    library = ctypes.CDLL(sys.argv[1])
    library.tessera_version.restype = ctypes.c_char_p
    library.tessera_plan_row.restype = ctypes.c_char_p
    for name in ("tessera_plan_row", "tessera_plan_free"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    rows, keys, dim, scale = 3, 11, 24, 0.3
    q = array.array("f", [math.sin(i) for i in range(rows * dim)])
    k = array.array("f", [math.cos(3 * i) for i in range(keys * dim)])
    v = array.array("f", [math.sin(5 * i + 1) for i in range(keys * dim)])
    out = array.array("f", [math.nan] * (rows * dim))
    tensors = {"q": view_of(q, [1, rows, 1, dim]), "k": view_of(k, [1, keys, 1, dim]),
               "v": view_of(v, [1, keys, 1, dim]), "out": view_of(out, [1, rows, 1, dim])}
    args = Args(**{name: ctypes.pointer(tensor) for name, tensor in tensors.items()})
    options = Options(given=SOFTMAX_SCALE, softmax_scale=scale)
    status = Status()

    def wrong():
        """The largest difference from the definition."""
        part = lambda values, at: values[at * dim:(at + 1) * dim]
        wanted = [attention(part(q, i), [part(k, j) for j in range(keys)],
                            [part(v, j) for j in range(keys)], scale) for i in range(rows)]
        worst = max(abs(out[i * dim + x] - wanted[i][x]) for i in range(rows) for x in range(dim))
        return not worst < 1e-5, worst

    code = library.tessera_flash_attention(ctypes.byref(args), ctypes.byref(options), None,
                                           ctypes.byref(status))
    if code != 0 or wrong()[0]:
        sys.exit(f"call: code {code}, {status.message.decode()}, worst difference {wrong()[1]}")
    plan = ctypes.c_void_p()
    for i in range(len(out)):
        out[i] = math.nan
    code = library.tessera_plan_flash_attention(ctypes.byref(args), ctypes.byref(options), None,
                                                ctypes.byref(plan), ctypes.byref(status))
    code = code or library.tessera_run_flash_attention(plan, ctypes.byref(args), None, 0, None,
                                                       ctypes.byref(status))
    if code != 0 or wrong()[0]:
        sys.exit(f"plan: code {code}, {status.message.decode()}, worst difference {wrong()[1]}")
    row = library.tessera_plan_row(plan).decode()
    library.tessera_plan_free(plan)
    tensors["k"].extent[3] = dim - 1
    code = library.tessera_flash_attention(ctypes.byref(args), None, None, ctypes.byref(status))
    if code != INVALID_ARGUMENT or "k: head_dim is 23, q has 24" not in status.message.decode():
        sys.exit(f"refusal: code {code}, {status.message.decode()}")
    print(f"tessera {library.tessera_version().decode()} from ctypes: {row}")


if __name__ == "__main__":
    main()
