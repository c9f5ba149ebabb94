"""Contexts of the NATS command line (`nats context`): named connections in files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retention.errors import UsageError


def selected_context(environment: Mapping[str, str]) -> str | None:
    """The name that `nats context select` wrote; None if there is none."""
    try:
        return (_directory(environment) / "context.txt").read_text().strip() or None
    except OSError:
        return None


def read_context(name: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """The keys of a context; empty texts and unset switches are left out.

    Raises:
        UsageError: There is no such context, or its file cannot be read.
    """
    directory = _directory(environment) / "context"
    path = directory / f"{name}.json"
    if ".." in name or os.sep in name:
        raise UsageError(
            f"{name!r} is no name of a context, but a path; name a context in {directory} ({_names(directory)})"
        )
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError:
        raise UsageError(
            f"there is no context {name} in {directory} ({_names(directory)}); make it with `nats context add {name}`, "
            "or give the server's URL"
        ) from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise UsageError(
            f"context {name}: {path} cannot be read: {why}; mend it with `nats context edit {name}`"
        ) from None
    if not isinstance(values, dict):
        raise UsageError(
            f"context {name}: {path} holds no JSON object; mend it with `nats context edit {name}`"
        )
    return {key: value for key, value in values.items() if value}


def _directory(environment: Mapping[str, str]) -> Path:
    home = environment.get("HOME")
    parent = environment.get("XDG_CONFIG_HOME")
    if parent:
        return Path(parent) / "nats"
    return (Path(home) if home else Path.home()) / ".config" / "nats"


def _names(directory: Path) -> str:
    names = sorted(path.stem for path in directory.glob("*.json"))
    return f"it has {', '.join(names)}" if names else "it has none"
