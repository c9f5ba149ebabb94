"""The demo's third part: a work queue and two workers; one is killed, and settled messages are released."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from retention import open_warehouse
from retention.api.stream import Stream

CONFIG = """\
streams:
  - name: ORDERS
    subjects: [orders.>]
    retention: workqueue           # a message stays until it is settled
    consumers:
      - {durable_name: packing, ack_policy: explicit, ack_wait: 3s}
"""
ORDERS, UNPAID, AT_ONCE = 120, 57, 30
LATER = "1h"
_ROOT = Path(__file__).parents[1]
_POLL_S, _LONG_S = 0.2, 600

Tell = Callable[[str, str], None]


def show(directory: Path, tell: Tell) -> None:
    """Publish orders, let two workers process them, kill one, and release settled orders."""
    stream = _published(directory / "orders")
    tell(
        "orders",
        f"{ORDERS} orders in a work queue, for consumer packing; its two workers take {AT_ONCE} at a time",
    )
    lost, batches = _worked(directory / "orders")
    tell(
        "killed",
        f"one of them was given {lost[0]} to {lost[-1]}, and killed (SIGKILL) before it had settled any",
    )
    settled = [seq for batch in batches for seq in batch.get("settled", ())]
    if sorted([*settled, UNPAID]) != list(range(1, ORDERS + 1)):
        sys.exit("Not every order was settled once: this is a defect, please report it.")
    again = sum(batch.get("again", 0) for batch in batches)
    tell(
        "settled",
        f"the other one settled {len(settled)}, each once; {again} of them came again, 3 s after they had been given "
        f"to the first; {UNPAID} is not paid, and comes again in {LATER}",
    )
    plan = stream.plan()
    tell("release", f"{plan.plan.removed_messages} of {ORDERS} messages go")
    tell("removed", stream.explain(lost[0]).sentence)
    tell("kept", stream.explain(UNPAID).sentence)
    report = plan.apply()
    tell("left", f"removed {report.removed_messages} messages, kept {stream.state().messages}")


def work(directory: Path) -> Iterator[dict[str, Any]]:
    """Fetch orders and settle the paid ones, until only delayed ones are left; yield the result of each batch."""
    packing = open_warehouse(directory).stream("ORDERS").consumer("packing")
    put_off = 0
    while True:
        messages = packing.fetch(AT_ONCE)
        if not len(messages):
            if packing.state.num_ack_pending <= put_off:
                return
            time.sleep(_POLL_S)
            continue
        yield {"given": messages.seqs.tolist()}
        is_unpaid = messages.seqs == UNPAID
        unpaid, paid = messages.filter(is_unpaid), messages.filter(~is_unpaid)
        unpaid.nak(LATER)
        put_off += len(unpaid)
        again = sum(message.deliveries > 1 for message in paid)
        yield {"settled": paid.seqs.tolist() * (paid.ack().taken == len(paid)), "again": again}


def _published(directory: Path) -> Stream:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "retention.yaml").write_text(CONFIG)
    stream = open_warehouse(directory).stream("ORDERS")
    stream.publish(
        [
            json.dumps({"subject": f"orders.{number}", "data": "1 book"})
            for number in range(1, ORDERS + 1)
        ]
    )
    return stream


def _worked(directory: Path) -> tuple[list[int], list[dict[str, Any]]]:
    """Start a slow worker, then another, and kill the first; return its messages, and the batches of the other."""
    with _worker(directory, "--slow") as slow:
        try:
            lost = next(_lines(slow))["given"]
            with _worker(directory) as quick:
                first = next(_lines(quick))
                slow.kill()
                return lost, [first, *_lines(quick)]
        finally:
            slow.kill()


def _worker(directory: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "scripts.demo_orders", str(directory), *options]
    return subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True)


def _lines(worker: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    for line in worker.stdout or ():
        yield json.loads(line)


def main() -> None:
    """Run a worker; a slow one takes ten minutes for its first batch."""
    directory, *options = sys.argv[1:]
    for batch in work(Path(directory)):
        print(json.dumps(batch), flush=True)
        if options:
            time.sleep(_LONG_S)


if __name__ == "__main__":
    main()
