"""Lines of lookup tables, as include/tessera/lookup/record.hpp describes them."""

COLUMNS = {"family": "attention", "semantic_version": "1", "code_version": "0", "device_class": "cpu",
           "identity": "type=f32", "size": "q_len=1", "row": "", "median_us": "10", "spread_us": "1",
           "default_row": "", "default_us": "0", "runner_up": "", "runner_up_us": "0", "samples": "20",
           "mode": "eager hot", "source": "tune", "environment": "", "date": "2026-11-21T09:30:00Z"}


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def lookup_line(**columns):
    """A sound record with these columns, line break included."""
    line = "tessera/1\t" + "\t".join(text or "-" for text in {**COLUMNS, **columns}.values())
    return f"{line}\t{crc32c(line.encode()):08x}\n"
