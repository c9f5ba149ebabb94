"""Workers that share a consumer, with durable diaries of delivered and settled messages."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from retention.api.stream import Stream
from retention.api.warehouse import open_warehouse
from retention.delivery.consumer import BatchConsumer
from retention.storage import crash_points
from tests.support.crew import ROOT, serve
from tests.support.laying import START, even_segments, lay, warehouse_with

Worker: TypeAlias = subprocess.Popen[bytes]

ACK_WAIT = 30 * 10**9


def prepare(folder: Path, segments: int, each: int, format_: str = "parquet") -> Stream:
    """A work queue with one consumer, billing, and segments of messages."""
    consumer = {"durable_name": "billing", "ack_policy": "explicit", "ack_wait": ACK_WAIT}
    limits: dict[str, Any] = {"retention": "workqueue", "no_ack": False, "subjects": ["s.*"]}
    warehouse = warehouse_with(folder, format_, START, consumers=[consumer], **limits)
    stream = warehouse.new_stream("ORDERS")
    lay(stream.opened, even_segments(segments, each), sealed=True)
    stream.consumer("billing")
    return stream


def opened_at(folder: Path, now_ns: int) -> Stream:
    warehouse = open_warehouse(folder / "retention.yaml", engine="local", clock=lambda: now_ns)
    return warehouse.stream("ORDERS")


@contextmanager
def diary(path: Path) -> Iterator[Any]:
    """A writer of JSON lines, each in the file when `note` returns."""
    with path.open("ab", buffering=0) as file:
        yield lambda **said: file.write(f"{json.dumps(said)}\n".encode())


def noted(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def work(billing: BatchConsumer, path: Path, batch: int, *, naks: float = 0.0) -> None:
    """Fetch, note the deliveries, settle them, note that, until no message is left; sometimes some are nacked."""
    choice = random.Random(path.name)
    with diary(path) as note:
        while messages := billing.fetch(choice.randint(1, batch)):
            note(given=messages.seqs.tolist())
            back = [choice.random() < naks for _ in range(len(messages))]
            if any(back):
                returned = messages.filter(pa.array(back))
                returned.nak()
                note(returned=returned.seqs.tolist())
            kept = messages.filter(pa.array([not one for one in back]))
            note(settled=kept.ack().taken if len(kept) else 0)


def start(folder: Path, diaries: Sequence[str], batch: int, naks: float) -> list[Worker]:
    """Start processes that run `work`, one per diary."""
    module = [sys.executable, "-m", "tests.support.consuming", str(folder)]
    return [subprocess.Popen([*module, name, str(batch), str(naks)], cwd=ROOT) for name in diaries]


def settled_once(folder: Path, diaries: Sequence[str], messages: int) -> None:
    """Assert that no message was delivered to two workers, and that each was settled by one."""
    lines = [line for name in diaries for line in noted(folder / name)]
    given = [seq for line in lines for seq in line.get("given", [])]
    returned = [seq for line in lines for seq in line.get("returned", [])]
    assert len(given) == messages + len(returned)
    assert set(given) == set(range(1, messages + 1))
    assert sum(line.get("settled", 0) for line in lines) == messages


def carry_out(case: dict[str, Any]) -> None:
    """Work in this process, killed at the step of the case."""
    folder = Path(case["folder"])
    stream = opened_at(folder, case["now_ns"])
    billing = stream.consumer("billing")
    crash_points.watch(case["environment"])
    work(billing, folder / case["diary"], case["batch"])


def queue_group() -> None:
    """Run one of several processes: `python -m tests.support.consuming FOLDER DIARY BATCH NAKS`."""
    folder, name, batch, naks = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    opened = open_warehouse(folder / "retention.yaml", engine="local").stream("ORDERS")
    began = time.monotonic()
    work(opened.consumer("billing"), folder / name, batch, naks=naks)
    print(f"{os.getpid()} {time.monotonic() - began:.2f} s")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        queue_group()
    else:
        serve(carry_out)
