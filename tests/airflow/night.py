"""One night in its own process: a DAG runs by Airflow's `dag.test()`, and the results of its tasks are written.

`python -m tests.airflow.night DAG_FILE RESULT`; the result is JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.airflow.world import load


def main() -> None:
    """Run the DAG of the file once."""
    file, result = map(Path, sys.argv[1:])
    run = load(file).test()
    tasks = [_told(ti) for ti in run.get_task_instances()]
    ended = {"state": run.state, "tasks": tasks}
    result.write_text(json.dumps(ended), encoding="utf-8")


def _told(ti: Any) -> dict[str, Any]:
    """A task, its mapped stream, and its state."""
    stream = None if ti.map_index < 0 else ti.rendered_map_index
    return {"task": ti.task_id, "stream": stream, "state": str(ti.state)}


if __name__ == "__main__":
    main()
