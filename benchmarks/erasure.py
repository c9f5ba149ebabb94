"""`python -m benchmarks.erasure`: processor seconds and memory of the search for erased strings, beside other tools.

The others read the files as they are stored: `sha256sum`, and `grep -F -f`. The search also decodes them.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.verify import GIB, make_stream

SEARCH = """
import sys
import pyarrow as pa
from retention.erasure.needles import needles_of_rows
from retention.erasure.search import search

subjects = open(sys.argv[1]).read().split()
needles = needles_of_rows([pa.table({"subject": subjects})]).without([])
places = sys.argv[2:]
result = search(places, needles)
assert result.is_clean and len(needles) == len(subjects), result
memory = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(memory.split()[1]) // 1024, file=sys.stderr)
"""


def main() -> None:
    """Make streams, measure, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.erasure", description=__doc__)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--payload", type=int, nargs="*", default=[100, 1_000])
    parser.add_argument("--needles", type=int, nargs="*", default=[1_000, 1_000_000])
    asked = parser.parse_args()
    print("| bytes a payload | MiB | strings | tool | to begin, s | s a GiB | memory, MiB |")
    print("|---|---|---|---|---|---|---|")
    for payload in asked.payload:
        with tempfile.TemporaryDirectory(prefix="benchmarks-") as directory:
            folder = Path(directory)
            make_stream(folder, asked.files, asked.rows, payload)
            data = [str(file) for file in folder.rglob("messages/partition=0/**/*.parquet")]
            size = sum(Path(file).stat().st_size for file in data)
            for count in asked.needles:
                strings = folder / "strings"
                strings.write_text("".join(f"erased.{n:07}.customer\n" for n in range(count)))
                measure(payload, size, count, strings, data)


def measure(payload: int, size: int, count: int, strings: Path, data: list[str]) -> None:
    """Print a row a tool: the costs for an empty file, then those for all files beyond that."""
    empty = strings.with_name("empty")
    empty.touch()
    tools = {
        "`sha256sum`": ("sha256sum",),
        "`grep -F -f`": ("grep", "-F", "-c", "-f", str(strings)),
        "search": (sys.executable, "-c", SEARCH, str(strings)),
    }
    for tool, command in tools.items():
        start, _ = cost(*command, str(empty))
        whole, memory = cost(*command, *data)
        print(
            f"| {payload:,} | {size / 2**20:,.0f} | {count:,} | {tool} | {start:.1f} "
            f"| {(whole - start) * GIB / size:.1f} | {memory} |",
            flush=True,
        )


def cost(*command: str) -> tuple[float, str]:
    """The processor seconds of a command, and what it says of its memory."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):  # 1: grep finds nothing
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, done.stderr.strip()


if __name__ == "__main__":
    main()
