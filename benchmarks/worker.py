"""One process of a benchmark: opens its contenders, then executes the requested runs, one JSON line each."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.contenders import load
from benchmarks.contenders.contender import Contender
from benchmarks.data import table_figures
from benchmarks.meter import Watch, measure
from benchmarks.spark_stages import shuffled_bytes
from benchmarks.tasks import COMPACT_NAMES, Task


def main() -> None:
    """Serve the contenders named on the command line; answers are written to the original standard output."""
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with ExitStack() as stack:
        contenders = {}
        for name in sys.argv[1:]:
            contenders[name] = load(name)
            stack.callback(contenders[name].close)
            contenders[name].open()
        ways = {name: contender.tasks for name, contender in contenders.items()}
        print(json.dumps(ways), file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(_answer(contenders, json.loads(line))), file=answers, flush=True)


def run(contender: Contender, source: Path, place: Path, task: Task) -> dict[str, Any]:
    """One run on a fresh copy: its cost, and the survivors."""
    contender.place(source, place, task)
    try:
        # Flush earlier writes, so that the fsync of this run does not wait for them.
        os.sync()
        before = shuffled_bytes()
        with Watch() as watch:
            cost = measure(lambda: contender.run(place, task))
        shuffled = None if before is None else (shuffled_bytes() or 0) - before
        messages, seq_sum = contender.survivors(place)
        compacted = table_figures(contender.files(place)) if task.name in COMPACT_NAMES else {}
    finally:
        shutil.rmtree(place)
    found = {"messages": messages, "seq_sum": seq_sum, "peaks": watch.peaks(), "shuffled": shuffled}
    return asdict(cost) | found | compacted


def _answer(contenders: dict[str, Contender], asked: dict[str, Any]) -> dict[str, Any]:
    place = Path(asked["place"])
    try:
        return run(
            contenders[asked["contender"]], Path(asked["source"]), place, Task(**asked["task"])
        )
    except Exception as error:  # a failed contender is a result, too
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0]}


if __name__ == "__main__":
    main()
