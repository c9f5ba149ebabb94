"""The options of the format `retention` that name a warehouse and a stream."""

from __future__ import annotations

from collections.abc import Mapping

from retention.api.log import Log
from retention.api.warehouse import open_warehouse
from retention.errors import UsageError

LOG_OPTIONS = ("warehouse", "config", "stream", "path")
"""`path` is the argument of `load` and `start`."""


def log_of(options: Mapping[str, str]) -> Log:
    """The stream or topic that options name.

    Raises:
        UsageError: an option is missing or excludes another, or there is no such stream.
    """
    return open_warehouse(_place(options), engine="local").log(_stream(options))


def _place(options: Mapping[str, str]) -> str:
    given = [options[name] for name in ("warehouse", "config") if options.get(name)]
    if len(given) == 2:  # noqa: PLR2004  (both)
        raise UsageError(
            "the options `warehouse` and `config` exclude each other: the configuration names its warehouse"
        )
    if not given:
        raise UsageError(
            'no warehouse is named: add .option("warehouse", DIR), a directory or an s3:// location, or '
            '.option("config", FILE)'
        )
    return given[0]


def _stream(options: Mapping[str, str]) -> str:
    names = {options[name] for name in ("stream", "path") if options.get(name)}
    if len(names) != 1:
        raise UsageError(
            'name one stream: by .option("stream", NAME), by load(NAME), or by start(NAME)'
            + (f", not both {' and '.join(sorted(names))}" if names else "")
        )
    return names.pop()
