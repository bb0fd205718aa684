"""The library from Python through its C interface: every operation of tessera/interop/c_operations.h, on
PyTorch tensors of the CPU or of a GPU. Needs nothing but ctypes and the two headers, which say what the
structs are; tensors are whatever has data_ptr, shape and stride.

    library = Library("build/libtessera_c.so")
    library.call("flash_attention", {"causal": True}, q=q, k=k, v=v, out=out)
    plan = library.plan("mean_pooling_chunks", {"chunk_size": 64}, x=x, out=out)
    plan.run(x=x, out=out)"""
import ctypes
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
TYPES = {"char": ctypes.c_char, "const char*": ctypes.c_char_p, "void*": ctypes.c_void_p,
         "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64,
         "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t, "double": ctypes.c_double}
TORCH_TYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "int32": "I32",
               "int64": "I64", "uint8": "U8", "int8": "I8", "uint32": "U32"}


class Refused(RuntimeError):
    """What the library says; `code` is the function's result."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


class Struct(ctypes.Structure):
    """A struct of the interface: `size` comes first and is set."""

    def __init__(self, **fields):
        super().__init__(**fields)
        self.size = ctypes.sizeof(self)


class Interface:
    """What the headers declare: `constants` and `structs` by name, and `structs_of` an operation."""

    def __init__(self, folders):
        text = "".join(next(folder / name for folder in folders if (folder / name).exists()).read_text()
                       for name in ("tessera/interop/c.h", "tessera/interop/c_operations.h"))
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        self.constants = {name: int(value) for name, value in
                          re.findall(r"\b(TESSERA_\w+)(?: =)? (\d+)\b", text)}
        self.structs = {}
        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", text, re.S):
            fields = [self._field(*match) for match in
                      re.findall(r"([\w ]+?\**)\s+(\w+)(?:\[(\w+)\])?;", body)]
            self.structs[name] = type(name, (Struct,), {"_fields_": fields})
        functions = re.findall(r"static inline int32_t tessera_(\w+)\(\s*const tessera_(\w+)_args\*", text)
        self.structs_of = {operation: struct for operation, struct in functions
                           if self.number_of(operation) is not None}

    def _field(self, kind, name, count):
        kind = kind.strip()
        if kind == "const tessera_tensor*":
            return name, ctypes.POINTER(self.structs["tessera_tensor"])
        return name, TYPES[kind] * self.constants[count] if count else TYPES[kind]

    def number_of(self, operation):
        return self.constants.get(f"TESSERA_OPERATION_{operation.upper()}")

    def tensor(self, tensor):
        """The struct of a tensor; a struct stays what it is."""
        struct = self.structs["tessera_tensor"]
        if isinstance(tensor, struct):
            return tensor
        kind = TORCH_TYPES[str(tensor.dtype).removeprefix("torch.")]
        view = struct(dtype=self.constants[f"TESSERA_{kind}"], data=tensor.data_ptr(), rank=tensor.dim())
        view.extent[:tensor.dim()] = tensor.shape
        view.stride[:tensor.dim()] = tensor.stride()
        if tensor.is_cuda:
            view.device_kind, view.device_ordinal = self.constants["TESSERA_CUDA"], tensor.device.index
        return view

    def args(self, operation, tensors):
        """The args struct; it keeps the structs of its tensors alive."""
        args = self.structs[f"tessera_{self.structs_of[operation]}_args"]()
        for name, tensor in tensors.items():
            if name not in dict(args._fields_):
                raise TypeError(f"{operation} has no tensor {name}")
            setattr(args, name, ctypes.pointer(self.tensor(tensor)))
        return args

    def options(self, operation, values):
        """The options struct: every value counts, also zero. None is unset; choices are words."""
        prefix = f"tessera_{self.structs_of[operation]}_"
        options = self.structs[f"{prefix}options"]()
        for name, value in values.items():
            if value is None:
                continue
            if isinstance(value, str):
                value = self.constants[f"TESSERA_{name}_{value}".upper()]
            options.given |= self.constants[f"{prefix}{name}".upper()]
            setattr(options, name, value)
        return options


class Library:
    def __init__(self, path):
        self.c = ctypes.CDLL(str(pathlib.Path(path).resolve()))
        places = (pathlib.Path(path).resolve().parents[1], ROOT)
        self.interface = Interface([place / part for place in places
                                    for part in ("include", "generated/include")])
        version = self.interface.constants["TESSERA_C_VERSION"]
        if self.c.tessera_c_version() != version:
            raise RuntimeError(f"{path}: has version {self.c.tessera_c_version()} of the interface, "
                               f"the headers have {version}")
        for name in ("version", "code_name", "plan_row", "plan_tier", "plan_reason"):
            getattr(self.c, f"tessera_{name}").restype = ctypes.c_char_p
        self.c.tessera_plan_workspace_bytes.restype = ctypes.c_size_t
        self.version = self.c.tessera_version().decode()

    @property
    def operations(self):
        return list(self.interface.structs_of)

    def asked(self, operation, options, tensors, row, stream):
        """What tessera_call and tessera_plan_make begin with."""
        known = self.interface
        context = known.structs["tessera_context"](row=row.encode() if row else None, stream=stream)
        return (known.number_of(operation), known.args(operation, tensors),
                known.options(operation, options), context)

    def check(self, function, *arguments):
        status = self.interface.structs["tessera_status"]()
        passed = [ctypes.byref(value) if isinstance(value, Struct) else value for value in arguments]
        if code := function(*passed, ctypes.byref(status)):
            raise Refused(status.message.decode(), code)

    def call(self, operation, options=(), row=None, stream=None, **tensors):
        self.check(self.c.tessera_call, *self.asked(operation, dict(options), tensors, row, stream))

    def plan(self, operation, options=(), row=None, stream=None, **tensors):
        """A plan for these tensors, under the interface's names."""
        return Plan(self, operation, self.asked(operation, dict(options), tensors, row, stream))


class Plan:
    def __init__(self, library, operation, asked):
        self.library, self.operation = library, operation
        self.stream = ctypes.c_void_p(asked[-1].stream)
        self.handle = ctypes.c_void_p()
        library.check(library.c.tessera_plan_make, *asked, ctypes.byref(self.handle))
        self.row, self.tier, self.reason = map(self._text, ("row", "tier", "reason"))

    def _text(self, name):
        return getattr(self.library.c, "tessera_plan_" + name)(self.handle).decode()

    def launcher(self, **tensors):
        """A function that runs the plan on these tensors; it does as little as ctypes can."""
        known, run = self.library.interface, self.library.c.tessera_plan_run
        args, status = known.args(self.operation, tensors), known.structs["tessera_status"]()
        kept, there, said = ctypes.byref(args), self.stream, ctypes.byref(status)
        plan, no_workspace, no_bytes = self.handle, ctypes.c_void_p(), ctypes.c_size_t(0)

        def launch():
            if code := run(plan, kept, no_workspace, no_bytes, there, said):
                raise Refused(status.message.decode(), code)
        launch.kept_alive = (self, tensors)
        return launch

    def run(self, **tensors):
        self.launcher(**tensors)()

    def __del__(self):
        if self.handle:
            self.library.c.tessera_plan_free(self.handle)
