"""Files of tasks among the reports: their paths, and the address of a page about streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflow_dags.engine import Engine

_JOBS = ("plan", "retain")
"""The jobs that can write a page."""


def job_report(engine: Engine, ti: Any, task_id: str) -> Path:
    """The path of the report of a try of a task."""
    return report_path(engine, ti, task_id, f"{ti.try_number}.json")


def report_path(engine: Engine, ti: Any, task_id: str, end: str) -> Path:
    """The path among the reports of a file of a task of this run."""
    folder = Path(engine.reports, ti.dag_id, ti.run_id.replace("/", "_"))
    return folder / f"{file_name(ti, task_id)}.{end}"


def file_name(ti: Any, task_id: str) -> str:
    """The part of a file's name that identifies the task, with its index if it is mapped."""
    return task_id if ti.map_index is None or ti.map_index < 0 else f"{task_id}.{ti.map_index}"


def has_page(engine: Engine, job: str) -> bool:
    """Whether tasks with this job write a page."""
    return engine.pages is not None and job in _JOBS


def page_path(report: Path) -> Path:
    """The path of the page next to a report.

    >>> page_path(Path("/r/dag/run/ORDERS.plan.1.json")).name
    'ORDERS.plan.1.html'
    """
    return report.with_suffix(".html")


def page_address(engine: Engine, report: Path) -> str:
    """The address of the page next to a report; empty: there is none."""
    path = page_path(report)
    if engine.pages is None or not path.exists():
        return ""
    return f"{engine.pages.rstrip('/')}/{quote(path.relative_to(engine.reports).as_posix())}"
