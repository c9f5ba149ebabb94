"""The command line in this process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import typer.testing
from typer.main import get_command
from typer.testing import CliRunner, Result

from retention.cli.main import app

# Building all commands takes a tenth of a second, and the runner does it for each call.
typer.testing._get_command = cache(get_command)  # type: ignore[attr-defined]


def invoke(words: Sequence[str], stdin: str | None = None) -> Result:
    """Run `retention` with these words; returns its result, also after a failure."""
    return CliRunner().invoke(app, words, input=stdin)
