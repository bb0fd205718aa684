"""What ptxas made of the kernels in an object or library: read off the cubins inside, which are ELF
files in the section .nv_fatbin, so that no tool of the CUDA toolkit is needed. Compressed ones are frames of
zstd, whose library every Debian has for its packages."""
import collections
import ctypes
import pathlib
import re
import struct
import subprocess
import tempfile

ROW = re.compile(r"attention_cuda_\w+?_w\d+b\d+r?(?![a-z0-9])")
# Rows that TESSERA_QUICK_DEVICE_CODE optimises little.
NOT_JUDGED_QUICK = re.compile(r"_(f16|coded|paged)_")
# Kernels of the gradients of attention, which several rows share: their names hold template arguments
# instead of a row.
GRADIENTS = re.compile(r"18attention_backward4(sm\d\d)\d+([a-z]+(?:_[a-z]+)*_gradients)I(?:NS_\d+)?(bf16|f16|f)E?(.*)")
TILES = re.compile(r"tuned_tilesILi(\d+)ELi(\d+)E")
DIMS = re.compile(r"^Li(\d+)E(?:Li(\d+)E)?")
KIND = re.compile(r"score_kindE(\d)E(Lb1E)?")
KINDS = ("plain", "computed", "all", "dropped")
CUBIN = re.compile(rb"\x7fELF\x02\x01")
FRAME = re.compile(rb"\x28\xb5\x2f\xfd")
MACHINE = 190  # EM_CUDA
REGISTERS, FRAME_BYTES = 0x2f, 0x11  # EIATTR_REGCOUNT, EIATTR_FRAME_SIZE
WITH_PAYLOAD = 4  # EIFMT_SVAL

Kernel = collections.namedtuple("Kernel", "row registers local_bytes code_bytes")
NamedKernel = collections.namedtuple("NamedKernel", "name registers local_bytes code_bytes")


def decompressed(data):
    """What the frames of zstd in `data` hold."""
    found = [match.start() for match in FRAME.finditer(data)]
    if not found:
        return
    zstd = ctypes.CDLL("libzstd.so.1")
    for name in ("ZSTD_getFrameContentSize", "ZSTD_findFrameCompressedSize", "ZSTD_decompress"):
        getattr(zstd, name).restype = ctypes.c_ulonglong
    address = ctypes.cast(data, ctypes.c_void_p).value
    for start in found:
        frame, left = ctypes.c_void_p(address + start), ctypes.c_size_t(len(data) - start)
        size = zstd.ZSTD_getFrameContentSize(frame, left)
        if size >= 1 << 30:  # no frame, or not one of a cubin
            continue
        content = ctypes.create_string_buffer(size)
        length = ctypes.c_size_t(zstd.ZSTD_findFrameCompressedSize(frame, left))
        if zstd.ZSTD_decompress(content, ctypes.c_size_t(size), frame, length) == size:
            yield content.raw


def cubins(data):
    for part in (data, *decompressed(data)):
        for found in CUBIN.finditer(part):
            cubin = memoryview(part)[found.start():]
            if len(cubin) > 64 and struct.unpack_from("<H", cubin, 18)[0] == MACHINE:
                yield cubin


def sections(elf):
    """Name, content and sh_link of each section."""
    offset, = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, offset + index * size) for index in range(count)]
    if not headers:
        return
    strings = elf[headers[names][4]:headers[names][4] + headers[names][5]]
    for name, kind, _, _, begin, length, *_ in headers:
        yield text_at(strings, name), elf[begin:begin + (0 if kind == 8 else length)], length


def text_at(strings, offset):
    return bytes(strings[offset:offset + 4096]).split(b"\0", 1)[0].decode()


def attributes(info):
    """Kind and payload of the entries of a section .nv.info."""
    at = 0
    while at + 4 <= len(info):
        form, kind, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == WITH_PAYLOAD:
            yield kind, info[at:at + size]
            at += size


def row_of(name):
    """The row in a kernel's name; for gradients of attention backend, kernel, dtype, head dims and what
    scores are: attention_backward_sm90_hopper_gradients_bf16_d128_plain. None: a kernel of no row."""
    row = ROW.search(name)
    if row:
        return row.group(0)
    found = GRADIENTS.search(name)
    if not found:
        return None
    target, kernel, dtype, rest = found.groups()
    kind, dims = KIND.search(rest), TILES.search(rest) or DIMS.search(rest)
    text = f"attention_backward_{target}_{kernel}_{'f32' if dtype == 'f' else dtype}"
    if not kind or not dims:
        return f"{text}_dany_"
    width, value_width = dims.groups()
    text += f"_d{width}" + (f"v{value_width}" if value_width not in (None, width) else "")
    text += f"_{KINDS[int(kind[1])]}" + ("_turns" if kind[2] else "")
    return text + ("_blocksparse" if "blocksparse" in rest else "")


def named_kernels_of(path):
    """Every kernel by its mangled name, once for each architecture."""
    with open(path, "rb") as file:
        data = file.read()
    for cubin in cubins(data):
        contents, lengths = {}, {}
        for name, content, length in sections(cubin):
            contents[name], lengths[name] = content, length
        symbols, strings = contents.get(".symtab"), contents.get(".strtab")
        if symbols is None:
            continue
        numbers = collections.defaultdict(dict)
        for kind, payload in attributes(contents.get(".nv.info", b"")):
            if kind in (REGISTERS, FRAME_BYTES):
                symbol, value = struct.unpack_from("<II", payload)
                name = text_at(strings, struct.unpack_from("<I", symbols, symbol * 24)[0])
                numbers[name][kind] = value
        for name, known in numbers.items():
            if REGISTERS in known and f".text.{name}" in lengths:
                local = max(known.get(FRAME_BYTES, 0), lengths.get(f".nv.local.{name}", 0))
                yield NamedKernel(name, known[REGISTERS], local, lengths[f".text.{name}"])


def kernels_of(path):
    """Every kernel of a row, once for each architecture."""
    for name, *more in named_kernels_of(path):
        row = row_of(name)
        if row:
            yield Kernel(row, *more)


def code_of(path):
    """Name and machine code of every kernel, once for each architecture."""
    with open(path, "rb") as file:
        data = file.read()
    for cubin in cubins(data):
        for name, content, _ in sections(cubin):
            if name.startswith(".text."):
                yield name.removeprefix(".text."), content


def judged_text(nvcc, text, architecture, judge):
    """What `judge` says of the object that nvcc makes of a text for an architecture, which is "90a", say."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "planted.cu"
        source.write_text(text)
        target = source.with_suffix(".o")
        code = f"-gencode=arch=compute_{architecture},code=sm_{architecture}"
        packing = ["-Xfatbin=-compress-all"] if architecture.startswith("90") else []  # as rows of Hopper are
        subprocess.run([nvcc, "-std=c++17", code, *packing, "-c", source, "-o", target], check=True)
        return judge(target)
