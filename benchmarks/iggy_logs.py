"""Logs of Iggy with many small messages, and the cost of importing one compared to copying it."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

from xxhash import xxh3_64_intdigest

PAYLOAD_BYTES = 100
_NOISE_BYTES = 60
"""Incompressible bytes of each payload."""
_BATCH = 1_000
_FIRST_US = 1_700_000_000 * 10**6
_BATCH_HEADER_BYTES = 256
_IMPORT = """
import sys, time
from pathlib import Path
from retention.startup import spare_pandas
spare_pandas()
from retention import open_warehouse
import retention.stores.delta.store, retention.ingest.topics.import_rows
place, directory, era = sys.argv[1:]
topic = open_warehouse(Path(place), engine="local").topic("clicks")
before, processor = time.perf_counter(), time.process_time()
topic.import_iggy_log(directory, era)
seconds, processor = time.perf_counter() - before, time.process_time() - processor
status = Path("/proc/self/status").read_text()
print(seconds, processor, int(status.split("VmHWM:")[1].split()[0]) / 1024)
"""


def measure(folder: Path, era: str, mebibytes: int, runs: int) -> None:
    """Print the medians of importing a log and of copying it, measured in turns."""
    log = folder / "iggy" / "partitions" / "0" / f"{0:020}.log"
    log.parent.mkdir(parents=True)
    write_log(log, era, mebibytes << 20)
    imported, copied = [], []
    for run in range(runs):
        imported.append(_imported(folder / str(run), folder / "iggy", era))
        before, processor = time.perf_counter(), time.process_time()
        _copied(log, folder / "copy")
        copied.append((time.perf_counter() - before, time.process_time() - processor, 0.0))
    for what, costs in (("import", imported), ("copying the bytes", copied)):
        seconds, processor, peak = (
            statistics.median(column) for column in zip(*costs, strict=True)
        )
        megabytes = log.stat().st_size / 1e6
        said = f"{peak:.0f}" if peak else ""
        print(
            f"| {era} | {what} | {seconds:.2f} | {megabytes / seconds:.0f} | {processor:.2f} | "
            f"{megabytes / processor:.0f} | {said} |",
            flush=True,
        )


def write_log(place: Path, era: str, size: int) -> None:
    """Write a log of at least that many bytes, of messages with payloads of 100 bytes."""
    write = _messages_08 if era == "0.8" else _batch_09
    with place.open("wb") as sink:
        offset = 0
        while sink.tell() < size:
            sink.write(write(offset))
            offset += _BATCH


def _messages_08(first: int) -> bytes:
    return b"".join(
        _checked(
            struct.pack("<QQQQQIIQ", at + 1, 0, at, _FIRST_US + at, _FIRST_US, 0, PAYLOAD_BYTES, 0)
        )
        for at in range(first, first + _BATCH)
    )


def _batch_09(first: int) -> bytes:
    frames = [
        _checked(struct.pack("<QQIIIIQ", first + at + 1, 0, at, at, 0, PAYLOAD_BYTES, 0))
        for at in range(_BATCH)
    ]
    length = _BATCH_HEADER_BYTES + sum(map(len, frames))
    fields = struct.pack("<QQQQQ", 0, first, _FIRST_US + first, _FIRST_US, length)
    count = struct.pack("<I", _BATCH)
    checksum = xxh3_64_intdigest(fields + count + b"".join(frame[:8] for frame in frames))
    header = fields + struct.pack("<Q", checksum) + count
    return header.ljust(_BATCH_HEADER_BYTES, b"\0") + b"".join(frames)


def _checked(header: bytes) -> bytes:
    content = header + os.urandom(_NOISE_BYTES).ljust(PAYLOAD_BYTES, b"x")
    return struct.pack("<Q", xxh3_64_intdigest(content)) + content


def _imported(folder: Path, directory: Path, era: str) -> tuple[float, ...]:
    """Seconds, processor seconds and peak memory in MiB of a new process; imports are not timed."""
    folder.mkdir()
    config = {"topics": [{"name": "clicks", "partitions": 1}]}
    (folder / "retention.yaml").write_text(json.dumps(config))
    command = [sys.executable, "-c", _IMPORT, str(folder), str(directory), era]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    shutil.rmtree(folder)
    return tuple(float(number) for number in told.split())


def _copied(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    with target.open("rb") as copy:
        os.fsync(copy.fileno())
    target.unlink()
