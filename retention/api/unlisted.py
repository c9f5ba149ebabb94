"""The streams that fell out of a configuration: named, and the end of a command, as the configuration wants it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from retention.api.selection import Selection
from retention.config import Config
from retention.config.discovery import unlisted_streams
from retention.errors import RefusedError


@dataclass(frozen=True)
class UnlistedFinding:
    """The streams to be named, and what follows."""

    config: Config
    """The configuration that does not list them."""
    names: tuple[str, ...] = ()

    @property
    def detail(self) -> str:
        """The clause that names them."""
        return unlisted_streams(self.names, self.config)[0]

    @property
    def remedy(self) -> str:
        """The clause that says what to do."""
        return unlisted_streams(self.names, self.config)[1]

    @property
    def sentence(self) -> str:
        """Both clauses; empty: there are none."""
        return "; ".join(unlisted_streams(self.names, self.config)) if self.names else ""

    @property
    def exit_code(self) -> int:
        """The exit code of work that nothing else has failed; 0 where there are none, or they are named only."""
        return RefusedError.exit_code if self.names and self.config.unlisted == "fail" else 0

    def of(self, name: str) -> UnlistedFinding:
        """The finding about one of them alone."""
        return replace(self, names=(name,))


def unlisted_finding(
    warehouse: Selection, names: Iterable[str] = (), tags: Iterable[str] = ()
) -> UnlistedFinding:
    """Look for the streams that no configuration lists any more, unless the configuration wants them unnamed.

    Args:
        warehouse: where to look.
        names: the names and patterns that a command was given.
        tags: the tags that it was given.
    """
    config = warehouse.config
    unlisted = [] if config.unlisted == "keep" else warehouse.unlisted(names, tags)
    return UnlistedFinding(config, tuple(unlisted))
