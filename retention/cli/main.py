"""The command `retention`: its application with all commands."""

from __future__ import annotations

from retention.cli import (  # noqa: F401  (each adds its commands)
    adopting,
    airflow,
    applying,
    buckets,
    compacting,
    consumers,
    doctor,
    effective,
    erasing,
    explaining,
    exporting,
    holding,
    looking,
    mirroring,
    offsets,
    packaging,
    pausing,
    planning,
    reclaiming,
    removing,
    repairing,
    reporting,
    restoring,
    runs,
    sandbox,
    simulating,
    syncing,
    verifying,
    viewing,
    writing,
)
from retention.cli.app import app
from retention.cli.examples import add_examples
from retention.startup import spare_plugins
from retention.storage.signals import end_between_commits

__all__ = ["app", "main"]

add_examples(app)


def main() -> None:
    """The entry point of the installed command."""
    end_between_commits()
    spare_plugins()
    app(prog_name="retention")
