#!/usr/bin/env python3
"""The C interface from Python's ctypes, without anything compiled: loaded.py LIBRARY."""
import array
import ctypes
import math
import sys

F32, CONTIGUOUS, SOFTMAX_SCALE, INVALID_ARGUMENT = 1, 2, 1, 1


class Sized(ctypes.Structure):
    """A struct of the interface: `size` comes first and is set."""

    def __init__(self, **fields):
        super().__init__(**fields)
        self.size = ctypes.sizeof(self)


class Status(Sized):
    _fields_ = [("size", ctypes.c_uint32), ("code", ctypes.c_int32), ("message", ctypes.c_char * 2040)]


class Tensor(Sized):
    _fields_ = [("size", ctypes.c_uint32), ("dtype", ctypes.c_int32), ("data", ctypes.c_void_p),
                ("extent", ctypes.c_int64 * 8), ("stride", ctypes.c_int64 * 8), ("rank", ctypes.c_int32),
                ("device_kind", ctypes.c_int32), ("device_ordinal", ctypes.c_int32),
                ("flags", ctypes.c_uint32)]

    @classmethod
    def of(cls, values, extent):
        made = cls(dtype=F32, data=values.buffer_info()[0], rank=len(extent), flags=CONTIGUOUS)
        made.extent[:len(extent)] = extent
        return made


class Args(Sized):
    _fields_ = [("size", ctypes.c_uint32), ("reserved", ctypes.c_uint32)] + [
        (name, ctypes.POINTER(Tensor)) for name in
        "q k v bias_pre bias_post mask q_segment_ids kv_segment_ids sinks cu_seqlens_q cu_seqlens_k "
        "seqlens_q seqlens_k out lse row_max dropout_mask".split()]


class Options(Sized):
    _fields_ = [("size", ctypes.c_uint32), ("given", ctypes.c_uint32), ("causal", ctypes.c_int32),
                ("causal_alignment", ctypes.c_int32), ("softmax_scale", ctypes.c_double),
                ("window_left", ctypes.c_int64), ("window_right", ctypes.c_int64),
                ("logits_soft_cap", ctypes.c_double), ("dropout_probability", ctypes.c_double),
                ("dropout_seed", ctypes.c_uint64), ("unnormalized", ctypes.c_int32),
                ("reserved", ctypes.c_int32)]


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
    tensors = {"q": Tensor.of(q, [1, rows, 1, dim]), "k": Tensor.of(k, [1, keys, 1, dim]),
               "v": Tensor.of(v, [1, keys, 1, dim]), "out": Tensor.of(out, [1, rows, 1, dim])}
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
