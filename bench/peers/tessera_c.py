"""The library from Python through its C interface (tessera/interop/c.h): attention on PyTorch tensors,
of the CPU or of a GPU. Needs nothing but ctypes; tensors are whatever has data_ptr, shape and stride."""
import ctypes

DTYPES = {"torch.float32": 1, "torch.float16": 2, "torch.bfloat16": 3, "torch.float64": 4, "torch.int32": 5,
          "torch.int64": 6, "torch.uint8": 7}
SOFTMAX_SCALE, WINDOW_LEFT, WINDOW_RIGHT = 1, 2, 4
CUDA = 1


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
    def of(cls, tensor):
        made = cls(dtype=DTYPES[str(tensor.dtype)], data=tensor.data_ptr(), rank=tensor.dim())
        made.extent[:tensor.dim()] = tensor.shape
        made.stride[:tensor.dim()] = tensor.stride()
        if tensor.is_cuda:
            made.device_kind, made.device_ordinal = CUDA, tensor.device.index
        return made


class Context(Sized):
    _fields_ = [("size", ctypes.c_uint32), ("threads", ctypes.c_int32), ("row", ctypes.c_char_p),
                ("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_size_t),
                ("stream", ctypes.c_void_p), ("flags", ctypes.c_uint64)]


class Args(Sized):
    _fields_ = [("size", ctypes.c_uint32), ("reserved", ctypes.c_uint32)] + [
        (name, ctypes.POINTER(Tensor)) for name in
        "q k v bias_pre bias_post mask q_segment_ids kv_segment_ids sinks cu_seqlens_q cu_seqlens_k "
        "seqlens_q seqlens_k out lse row_max dropout_mask".split()]

    @classmethod
    def of(cls, **tensors):
        made = cls()
        made.views = {name: Tensor.of(one) for name, one in tensors.items()}
        for name, one in made.views.items():
            setattr(made, name, ctypes.pointer(one))
        return made


class Options(Sized):
    _fields_ = [("size", ctypes.c_uint32), ("given", ctypes.c_uint32), ("causal", ctypes.c_int32),
                ("causal_alignment", ctypes.c_int32), ("softmax_scale", ctypes.c_double),
                ("window_left", ctypes.c_int64), ("window_right", ctypes.c_int64),
                ("logits_soft_cap", ctypes.c_double), ("dropout_probability", ctypes.c_double),
                ("dropout_seed", ctypes.c_uint64), ("unnormalized", ctypes.c_int32),
                ("reserved", ctypes.c_int32)]


class Refused(RuntimeError):
    """What the library says."""


class Library:
    def __init__(self, path):
        self.c = ctypes.CDLL(path)
        for name in ("tessera_version", "tessera_plan_row", "tessera_plan_tier", "tessera_plan_reason"):
            getattr(self.c, name).restype = ctypes.c_char_p
        self.c.tessera_plan_workspace_bytes.restype = ctypes.c_size_t
        self.version = self.c.tessera_version().decode()

    def plan(self, row=None, stream=None, causal=False, **tensors):
        """A plan for attention on these tensors: q, k, v, out, and others by the interface's names."""
        return Plan(self, Options(causal=int(causal)),
                    Context(row=row.encode() if row else None, stream=stream), Args.of(**tensors))


class Plan:
    def __init__(self, library, options, context, args):
        self.c = library.c
        self.stream = ctypes.c_void_p(context.stream)
        self.handle = ctypes.c_void_p()
        status = Status()
        if self.c.tessera_plan_flash_attention(ctypes.byref(args), ctypes.byref(options),
                                               ctypes.byref(context), ctypes.byref(self.handle),
                                               ctypes.byref(status)):
            raise Refused(status.message.decode())
        self.row = self._text("row")
        self.tier = self._text("tier")
        self.reason = self._text("reason")

    def _text(self, name):
        return getattr(self.c, "tessera_plan_" + name)(self.handle).decode()

    def launcher(self, **tensors):
        """A function that runs the plan on these tensors; it does as little as ctypes can."""
        args, status, run = Args.of(**tensors), Status(), self.c.tessera_run_flash_attention
        kept, there, said = ctypes.byref(args), self.stream, ctypes.byref(status)
        plan, no_workspace, no_bytes = self.handle, ctypes.c_void_p(), ctypes.c_size_t(0)

        def launch():
            if run(plan, kept, no_workspace, no_bytes, there, said):
                raise Refused(status.message.decode())
        launch.kept_alive = (self, tensors)
        return launch

    def __del__(self):
        if self.handle:
            self.c.tessera_plan_free(self.handle)
