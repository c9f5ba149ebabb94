"""The initiator of a run: its user, machine and process, and the scheduler's names for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from retention.errors.printable import sentence

SCHEDULERS: Mapping[str, Mapping[str, str]] = {
    "airflow": {
        "dag_id": "AIRFLOW_CTX_DAG_ID",
        "task_id": "AIRFLOW_CTX_TASK_ID",
        "dag_run_id": "AIRFLOW_CTX_DAG_RUN_ID",
        "try_number": "AIRFLOW_CTX_TRY_NUMBER",
    },
    "spark": {"application_id": "SPARK_APPLICATION_ID"},
    "yarn": {"container_id": "CONTAINER_ID"},
    "slurm": {"job_id": "SLURM_JOB_ID"},
    "systemd": {"invocation_id": "INVOCATION_ID"},
}
"""Scheduler → its name of a thing → the environment variable that passes this name to the processes it starts.

Only these variables are read, because others contain secrets.
"""
_MOST_CHARACTERS = 256


def initiator(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The initiator of this process for the run history; contains no secret.

    Args:
        environment: the variables with schedulers' names; None for the process's own.

    Returns:
        `user`, `host`, `pid`, `program`, and `scheduler` (scheduler → its names) if one started the process.
    """
    variables = os.environ if environment is None else environment
    schedulers = {
        scheduler: {
            name: _short(variables[variable])
            for name, variable in names.items()
            if variables.get(variable)
        }
        for scheduler, names in SCHEDULERS.items()
    }
    present = {scheduler: names for scheduler, names in schedulers.items() if names}
    return {
        "user": _short(_user()),
        "host": _short(os.uname().nodename),
        "pid": os.getpid(),
        "program": _short(_program()),
    } | ({"scheduler": present} if present else {})


def _program() -> str:
    """The name of the program, without its directory and its arguments, which may contain anything."""
    path = PurePath(sys.argv[0] if sys.argv else "")
    return (path.parent.name if path.stem == "__main__" else path.name) or "python"


def _user() -> str:
    """The name of the process's user; its number if it has no name, as in many containers."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _short(text: str) -> str:
    """A text as one line of bounded length, without terminal control characters and characters invalid in JSON."""
    return sentence(text.replace("\n", " "))[:_MOST_CHARACTERS]


def initiator_text(who: object) -> str:
    """The user, machine and process of a run, and the scheduler's names, in words.

    Args:
        who: as in the record of a run; None for an early release's.
    """
    if not isinstance(who, Mapping):
        return "an unrecorded process"
    scheduler = who.get("scheduler")
    schedulers = [
        f"{name} {', '.join(f'{of} {value}' for of, value in names.items())}"
        for name, names in (scheduler.items() if isinstance(scheduler, Mapping) else ())
        if isinstance(names, Mapping)
    ]
    named = (
        f"{who.get('program')} (process {who.get('pid')}) of {who.get('user')} on {who.get('host')}"
    )
    return "; ".join([named, *schedulers])
