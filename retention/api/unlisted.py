"""Streams missing from a configuration: their names, and the exit code that the configuration wants."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from retention.api.selection import StreamSelection
from retention.config import Config
from retention.config.discovery import unlisted_streams
from retention.errors import RefusedError


@dataclass(frozen=True)
class UnlistedFinding:
    """The unlisted streams to report, and the consequence."""

    config: Config
    """The configuration that does not list them."""
    names: tuple[str, ...] = ()

    @property
    def detail(self) -> str:
        """The clause that names them."""
        return unlisted_streams(self.names, self.config)[0]

    @property
    def remedy(self) -> str:
        """The clause with the remedy."""
        return unlisted_streams(self.names, self.config)[1]

    @property
    def sentence(self) -> str:
        """Both clauses; empty if there are no such streams."""
        return "; ".join(unlisted_streams(self.names, self.config)) if self.names else ""

    @property
    def exit_code(self) -> int:
        """The exit code of otherwise successful work; 0 without unlisted streams, or if they are only reported."""
        return RefusedError.exit_code if self.names and self.config.unlisted == "fail" else 0

    def of(self, name: str) -> UnlistedFinding:
        """The finding for a single stream."""
        return replace(self, names=(name,))


def unlisted_finding(
    warehouse: StreamSelection, names: Iterable[str] = (), tags: Iterable[str] = ()
) -> UnlistedFinding:
    """Find the streams that no configuration lists any more, unless the configuration says not to report them.

    Args:
        warehouse: the warehouse.
        names: the names and patterns given to a command.
        tags: the tags given to it.
    """
    config = warehouse.config
    unlisted = [] if config.unlisted == "keep" else warehouse.unlisted(names, tags)
    return UnlistedFinding(config, tuple(unlisted))
