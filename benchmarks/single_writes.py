"""`python -m benchmarks.single_writes`: single messages, puts and locks, one commit each, in a warm process."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from retention import open_warehouse

WARM_UPS = 5
"""Operations that are not counted."""
KEYS, SUBJECTS = 50, 7
_CONFIG = """
defaults: {{format: {format}}}
streams: [{{name: ORDERS, subjects: [orders.>]}}]
buckets: [{{name: BENCH, limit_marker_ttl: 1h}}]
"""
Act = Callable[[int], object]


def _plain(place: Path) -> Act:
    stream = open_warehouse(place).stream("ORDERS")
    return lambda number: stream.publish([_message(number)])


def _with_id(place: Path) -> Act:
    stream = open_warehouse(place).stream("ORDERS")
    return lambda number: stream.publish(
        [_message(number) | {"headers": {"Nats-Msg-Id": f"id-{number}"}}]
    )


def _put(place: Path) -> Act:
    bucket = open_warehouse(place).kv("BENCH")
    return lambda number: bucket.put(f"key-{number % KEYS}", b"value")


def _lock(place: Path) -> Act:
    bucket = open_warehouse(place).kv("BENCH")

    def act(_: int) -> None:
        with bucket.lock("job", ttl="60s"):
            pass

    return act


def _message(number: int) -> dict[str, object]:
    return {"subject": f"orders.{number % SUBJECTS}", "payload": "hello"}


ACTS: dict[str, Callable[[Path], Act]] = {
    "publish": _plain,
    "publish with an id": _with_id,
    "put": _put,
    "lock and release": _lock,
}


def measure(act: Act, count: int) -> tuple[float, float]:
    """The medians of processor milliseconds and of milliseconds of an operation."""
    for number in range(WARM_UPS):
        act(number)
    used, passed = [], []
    for number in range(WARM_UPS, WARM_UPS + count):
        cpu, wall = time.process_time(), time.perf_counter()
        act(number)
        used.append(1e3 * (time.process_time() - cpu))
        passed.append(1e3 * (time.perf_counter() - wall))
    return statistics.median(used), statistics.median(passed)


def main() -> int:
    """Measure each operation on a fresh table of each format, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.single_writes", description=__doc__)
    parser.add_argument("--count", type=int, default=60, help="operations of each kind")
    parser.add_argument("--directory", type=Path, help="where tables lie")
    options = parser.parse_args()
    print("| operation | format | processor ms | ms |\n" + "|---" * 4 + "|", flush=True)
    for name, prepared in ACTS.items():
        for table_format in ("delta", "parquet"):
            with tempfile.TemporaryDirectory(dir=options.directory) as directory:
                Path(directory, "retention.yaml").write_text(_CONFIG.format(format=table_format))
                used, passed = measure(prepared(Path(directory)), options.count)
            print(f"| {name} | {table_format} | {used:.1f} | {passed:.1f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
