"""The legal holds of a stream, topic or table as written in a configuration."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from retention.config.types import ConfigMapping, Instant, refusal_error
from retention.core.subjects import is_valid_filter
from retention.schemas.bounds import MAX_SEQ

_Text = Annotated[str, StringConstraints(pattern=r"\S")]
_Bound = Annotated[int, Field(ge=0, le=MAX_SEQ)]
_ID_DIGITS = 16


class HoldConfig(ConfigMapping):
    """A legal hold by times."""

    reason: _Text
    owner: _Text | None = None
    since: Instant | None = Field(default=None, alias="from")
    """The instant at or after which covered messages were stored, or the times of covered rows are."""
    before: Instant | None = Field(default=None, alias="to")
    """The instant before which."""
    until: Instant | None = None
    """The instant of the wall clock at which it ends; None: it is kept until released."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.since is not None and self.before is not None and self.since >= self.before:
            raise refusal_error("ends before it begins: write a `to` later than `from`")
        return self

    @property
    def id(self) -> str:
        """The id of the legal hold: any change of its fields makes another one."""
        fields = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
        return f"configured-{digest[:_ID_DIGITS]}"


class TopicHold(HoldConfig):
    """A legal hold of a topic: of offsets in each partition, by times."""

    from_seq: _Bound | None = None
    to_seq: _Bound | None = None

    @property
    def ranges(self) -> tuple[int, int] | None:
        """The lowest and the highest sequence; None: all."""
        if self.from_seq is None and self.to_seq is None:
            return None
        return self.from_seq or 0, MAX_SEQ if self.to_seq is None else self.to_seq

    @model_validator(mode="after")
    def _check_ranges(self) -> Self:
        if self.ranges is not None and self.ranges[0] > self.ranges[1]:
            raise refusal_error("covers no sequence: write a to_seq that is not below from_seq")
        return self


class StreamHold(TopicHold):
    """A legal hold of a stream: of subjects, by sequences and times."""

    subject: str | None = None

    @model_validator(mode="after")
    def _check_subject(self) -> Self:
        if self.subject is not None and not is_valid_filter(self.subject):
            raise refusal_error(
                f"{self.subject!r} is not a subject filter; write one such as orders.>"
            )
        return self


class RowHold(HoldConfig):
    """A legal hold of a table in place: of rows with certain values, by times."""

    key: dict[str, str | bool | int | float] | None = None
