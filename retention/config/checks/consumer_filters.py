"""The refusals of a consumer's filter subjects, on their own and on its stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Any

from retention.config.consumer import ConsumerConfig
from retention.config.types import ConfigRefusal, refusal
from retention.core.subjects import is_subset, is_valid_filter, overlap

if TYPE_CHECKING:
    from retention.config.stream_fields import StreamFields


def filters_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The filter subjects in a consumer's configuration with the server's names; empty: all subjects of its stream."""
    several = tuple(config.get("filter_subjects") or ())
    single = config.get("filter_subject")
    return several or ((single,) if single else ())


def filter_refusals(consumer: ConsumerConfig) -> Iterator[ConfigRefusal]:
    """The refusals of a consumer's filters that apply on any stream."""
    if consumer.filter_subject and consumer.filter_subjects:
        text = "filter_subject and filter_subjects exclude each other; put all into filter_subjects"
        yield refusal("filter_subject filter_subjects", text, 10136)
        return
    key = "filter_subject" if consumer.filter_subject else "filter_subjects"
    for wanted in consumer.filters:
        if not wanted:
            yield refusal(key, "a filter cannot be empty; leave it out, or write '>'", 10139)
        elif not is_valid_filter(wanted):
            text = (
                f"{wanted!r} is not a subject: tokens between dots must not be empty or have"
                " whitespace, and > is allowed only at the end"
            )
            yield refusal(key, text)
        elif has_wildcard_look_alike(wanted):
            text = (
                f"{wanted!r} has a token that begins with a wildcard and is not one, which servers match"
                " inconsistently; write the wildcard alone, or leave it out"
            )
            yield refusal(key, text, None)
    for first, second in combinations(consumer.filters, 2):
        if is_subset(first, second) or is_subset(second, first):
            yield refusal(key, f"{first!r} and {second!r} overlap; leave one of them out", 10138)


def has_wildcard_look_alike(wanted: str) -> bool:
    """Whether a token is longer than a wildcard and begins with one: `*b`, `>>`."""
    return any(len(token) > 1 and token[0] in "*>" for token in wanted.split("."))


def unmatched_filter_refusals(
    consumer: ConsumerConfig, stream: StreamFields
) -> Iterator[ConfigRefusal]:
    """The refusals of filters that no message of the stream can match, if its subjects define what it stores."""
    if stream.mirror is not None or stream.sources or stream.subject_transform is not None:
        return
    key = "filter_subject" if consumer.filter_subject else "filter_subjects"
    taken = ", ".join(stream.subjects)
    for wanted in consumer.filters:
        if is_valid_filter(wanted) and not any(
            overlap(wanted, subject) for subject in stream.subjects
        ):
            text = f"{wanted!r} matches no subject of the stream; write one within {taken}"
            yield refusal(f"{key} subjects", text, None)
