"""What ptxas made of the kernels in an object or library: read off the cubins inside, which are ELF
files in the section .nv_fatbin, so that no tool of the CUDA toolkit is needed."""
import collections
import re
import struct

ROW = re.compile(r"attention_cuda_\w+?_w\d+b\d+r?(?![a-z0-9])")
CUBIN = re.compile(rb"\x7fELF\x02\x01")
MACHINE = 190  # EM_CUDA
REGISTERS, FRAME_BYTES = 0x2f, 0x11  # EIATTR_REGCOUNT, EIATTR_FRAME_SIZE
WITH_PAYLOAD = 4  # EIFMT_SVAL

Kernel = collections.namedtuple("Kernel", "row registers local_bytes code_bytes")


def cubins(data):
    for found in CUBIN.finditer(data):
        cubin = memoryview(data)[found.start():]
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


def kernels_of(path):
    """Every kernel of a row, once for each architecture."""
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
            row = ROW.search(name)
            if row and REGISTERS in known and f".text.{name}" in lengths:
                local = max(known.get(FRAME_BYTES, 0), lengths.get(f".nv.local.{name}", 0))
                yield Kernel(row.group(0), known[REGISTERS], local, lengths[f".text.{name}"])
