"""Options of jobs in a DAG: the jobs that accept each option, and the resulting arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_dags.streams import group_id

_ALL = ("sync", "plan", "apply", "compact", "reclaim", "verify")
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "metrics_file": _ALL,
    "openlineage": _ALL,
    "log_format": _ALL,
    "debug": _ALL,
    "wait": ("sync", "apply", "compact", "reclaim"),
    "max_time": ("apply", "compact"),
    "max_bytes": ("apply", "compact"),
}
"""Option → the steps with jobs that accept it; a step omits options that its job does not accept."""
_FILE = "metrics_file"
_PARTS = ("{stream}", "{step}")


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that no job accepts, and a file that every task would overwrite.

    Raises:
        ValueError: names the option.
    """
    for name in options:
        if name not in OPTIONS:
            raise ValueError(
                f"options: {name!r} is not an option of jobs in a DAG; the options are {', '.join(OPTIONS)}"
            )
    path = options.get(_FILE)
    if path and not all(part in str(path) for part in _PARTS):
        raise ValueError(
            f"options: {_FILE} {path!r} is one file that every task would overwrite; write "
            f"{' and '.join(_PARTS)} into its name"
        )


def arguments_of(options: Mapping[str, Any], step: str, stream: str) -> list[str]:
    """The arguments from options for the job of a step."""
    given = {name: value for name, value in options.items() if step in OPTIONS[name]}
    if given.get(_FILE):
        path = str(given[_FILE]).replace("{stream}", group_id(stream))
        given[_FILE] = path.replace("{step}", step)
    return [
        f"--{name.replace('_', '-')}" if value is True else f"--{name.replace('_', '-')}={value}"
        for name, value in given.items()
        if value not in (None, False)
    ]
