"""The `guards` of a stream in its configuration: limits, each bare or with the consequence for a pass beyond it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator

from retention.config.types import Budget, ConfigMapping, Minimum, Share
from retention.core.removal_guards import GuardAction, GuardLimit, RemovalGuards


class _Guard(ConfigMapping):
    """A guard written as a mapping."""

    limit: int
    then: GuardAction = "refuse"

    def rule(self) -> GuardLimit:
        """The guard as used by the rules."""
        return GuardLimit(self.limit, self.then)


class ShareGuard(_Guard):
    """A share of the messages, in percent, and the consequence for a pass that removes more."""

    limit: Share


class BytesGuard(_Guard):
    """A number of bytes, and the consequence for a pass that removes more."""

    limit: Budget


class CountGuard(_Guard):
    """A number of messages, and the consequence for a pass that keeps fewer."""

    limit: Minimum


def _as_mapping(value: object) -> object:
    """A bare limit as the equivalent mapping; every other value unchanged."""
    return value if isinstance(value, Mapping | _Guard) else {"limit": value}


class GuardSettings(ConfigMapping):
    """The bounds of a single pass; an omitted key sets no bound."""

    max_removed_share: Annotated[
        ShareGuard | None, BeforeValidator(_as_mapping, json_schema_input_type=Share | ShareGuard)
    ] = None
    max_removed_bytes: Annotated[
        BytesGuard | None, BeforeValidator(_as_mapping, json_schema_input_type=Budget | BytesGuard)
    ] = None
    min_kept_messages: Annotated[
        CountGuard | None, BeforeValidator(_as_mapping, json_schema_input_type=Minimum | CountGuard)
    ] = None

    def rule(self) -> RemovalGuards:
        """The guards as used by the rules."""
        written = ((name, getattr(self, name)) for name in GuardSettings.model_fields)
        return RemovalGuards(**{name: guard.rule() for name, guard in written if guard is not None})
