"""The parts of a stream's documents: type, range and shape of a field, validated before any work starts."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from retention.core.file_records import is_inside, quoted, record_problem

HIGHEST = 2**63 - 1
Shape = TypeVar("Shape", bound=BaseModel)


def _inside(path: str) -> str:
    if not is_inside(path):
        raise ValueError("leads outside the stream's directory")
    return path


def _ranges(ranges: list[list[int]]) -> list[list[int]]:
    flat = [end for pair in ranges for end in pair]
    if any(len(pair) != 2 for pair in ranges) or any(  # noqa: PLR2004
        before > after for before, after in pairwise(flat)
    ):
        raise ValueError("are not ascending ranges of sequences")
    return ranges


Int64 = Annotated[int, Field(ge=-HIGHEST - 1, le=HIGHEST)]
Natural = Annotated[int, Field(ge=0, le=HIGHEST)]
"""A count, a length, a sequence or the base of a segment."""
NextSequence = Annotated[int, Field(ge=0, le=HIGHEST + 1)]
PartitionNumber = Annotated[int, Field(ge=0, lt=2**31)]
Version = Annotated[int, Field(ge=-1, le=HIGHEST)]
"""The version of a table; -1: the table does not exist yet."""
Digits = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,9})$")]
"""A partition, as a key of JSON."""
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Identifier = Annotated[str, Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z.-]{0,127}$")]
"""The identifier of a table, a plan or a run; file names contain it."""
Name = Annotated[str, Field(min_length=1, max_length=4096)]
Rule = Annotated[str, Field(pattern=r"^[a-z_]{1,64}$")]
Path = Annotated[str, Field(max_length=4096), AfterValidator(_inside)]
"""The path of a data file, relative to `messages/`."""
Ranges = Annotated[list[list[Natural]], AfterValidator(_ranges)]
"""Ranges of sequences, both ends inclusive."""
Counts = dict[Rule, Natural]
"""Rule → messages."""


class JsonDocument(BaseModel):
    """A JSON document: numbers are not accepted as text, and unknown fields are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)


class PlacedFile(JsonDocument):
    """A data file with consistent fields, in the directory of its partition and segment."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        problem = record_problem(vars(self))
        if problem is not None:
            raise ValueError(problem)
        return self


class RequestDocument(JsonDocument):
    """A request of an operator, as `rules.requests` writes it."""

    rule: Rule
    subject: str | None = None
    seq: Natural | None = None
    keep: Natural | None = None
    seqs: list[Natural] | None = None
    erase: bool = False
    partition: PartitionNumber | None = None
    count: Natural | None = None
    up_to: Natural | None = None
    older_than_ns: Natural | None = None


class StreamFormat(JsonDocument):
    """The format of a stream's directory; unknown fields of newer versions are accepted."""

    model_config = ConfigDict(extra="allow")

    format: Annotated[str, Field(pattern="^[a-z]{1,32}$")]
    format_version: Natural
    made: bool = False
    stream: Name | None = None


def judge(shape: type[BaseModel], content: object) -> None:
    """Check the content of a document against its shape.

    Raises:
        ValueError: naming the first field that does not fit, and its value.
    """
    validated(shape, content)


def validated(shape: type[Shape], content: object) -> Shape:
    """Parse content as a document of a shape.

    Raises:
        ValueError: naming the first field that does not fit, and its value.
    """
    try:
        return shape.model_validate(content)
    except ValidationError as error:
        raise ValueError(_wrong(error)) from None


def _wrong(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"]))
    about = f"{field} " if field else ""
    if first["type"] == "missing":
        return f"{about}is missing"
    if first["type"] == "extra_forbidden":
        return f"{about}is not a field that it may have"
    text = first["msg"].removeprefix("Value error, ")
    if isinstance(first["input"], Mapping | list):
        return f"{about}{text}" if first["type"] == "value_error" else f"{about}: {text}"
    return f"{about}is {quoted(first['input'])}: {text[0].lower()}{text[1:]}"
