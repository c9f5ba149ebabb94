"""The `guards` of a stream or table as written: limits, each bare or with the consequence for a pass beyond it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import BeforeValidator, model_validator

from retention.config.types import Budget, ConfigMapping, Minimum, Share, refusal_error
from retention.core.removal_guards import GuardAction, GuardLimit, RemovalGuards


class _Guard(ConfigMapping):
    """A guard written as a mapping."""

    limit: int
    then: GuardAction = "refuse"

    def rule(self) -> GuardLimit:
        """The guard as used by the rules."""
        return GuardLimit(self.limit, self.then)


class ShareGuard(_Guard):
    """A share of the messages or rows, in percent, and the consequence for a pass that removes more."""

    limit: Share


class BytesGuard(_Guard):
    """A number of bytes, and the consequence for a pass that removes more."""

    limit: Budget


class CountGuard(_Guard):
    """A number of messages or rows, and the consequence for a pass that keeps fewer."""

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
    min_kept_rows: Annotated[
        CountGuard | None, BeforeValidator(_as_mapping, json_schema_input_type=Minimum | CountGuard)
    ] = None
    """The same guard as `min_kept_messages`, by the name for tables."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.min_kept_messages is not None and self.min_kept_rows is not None:
            raise refusal_error("min_kept_messages and min_kept_rows are one guard: write one")
        return self

    def rule(self) -> RemovalGuards:
        """The guards as used by the rules."""
        kept = self.min_kept_messages or self.min_kept_rows
        guards = (self.max_removed_share, self.max_removed_bytes, kept)
        return RemovalGuards(*(None if guard is None else guard.rule() for guard in guards))
