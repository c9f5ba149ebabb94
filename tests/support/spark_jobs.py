"""Spark jobs from inside their tasks: the names of a job, and tasks that wait for cancellation."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import TaskContext

PATIENCE_S = 60.0


def called() -> tuple[str, str, str]:
    """Group, description and tags of the current task's job; empty if there is none."""
    task = TaskContext.get()
    names = ("spark.jobGroup.id", "spark.job.description", "spark.job.tags")
    group, description, tags = (task and task.getLocalProperty(name) for name in names)
    return group or "", description or "", tags or ""


def noting(act: Callable[..., Any], notes: Path) -> Callable[..., Any]:
    """A function that does its work, and writes its job's names into a folder."""
    notes.mkdir()

    def acting(*given: Any, **named: Any) -> Any:
        (notes / str(time.monotonic_ns())).write_text(json.dumps(called()), encoding="utf-8")
        return act(*given, **named)

    return acting


def noted(notes: Path) -> set[tuple[str, str, str]]:
    """The names of jobs written by tasks."""
    return {_read(note) for note in notes.iterdir()}


def waiting(act: Callable[..., Any], begun: Path) -> Callable[..., Any]:
    """A function that writes its job's names, does its work, and then waits very long."""

    def acting(*given: Any, **named: Any) -> Any:
        done = act(*given, **named)
        begun.with_suffix(".new").write_text(json.dumps(called()), encoding="utf-8")
        begun.with_suffix(".new").replace(begun)
        time.sleep(PATIENCE_S)
        return done

    return acting


def wait_for(file: Path) -> tuple[str, str, str]:
    """Wait for a task's file, and return its job's names."""
    until = time.monotonic() + PATIENCE_S
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.05)
    return _read(file)


def _read(file: Path) -> tuple[str, str, str]:
    group, description, tags = json.loads(file.read_text(encoding="utf-8"))
    return group, description, tags
