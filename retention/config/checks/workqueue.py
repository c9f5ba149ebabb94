"""The rules of a work queue for its consumers: explicit acks, all messages, one consumer per subject."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import TYPE_CHECKING

from retention.config.consumer import ConsumerConfig
from retention.config.types import ConfigRefusal, refusal
from retention.core.subjects import overlap

if TYPE_CHECKING:
    from retention.config.stream_fields import StreamFields


def work_queue_refusals(
    consumer: ConsumerConfig, stream: StreamFields, others: Collection[ConsumerConfig]
) -> Iterator[ConfigRefusal]:
    """The refusals of a new consumer on a stream with work-queue retention; none on other streams."""
    if stream.retention != "workqueue" or consumer.is_internal:
        return
    pulls_without_acks = consumer.ack_policy == "none" and not consumer.is_push  # see 10084
    if consumer.ack_policy not in {"explicit", "flow_control"} and not pulls_without_acks:
        text = "a work queue removes messages acknowledged one by one; write explicit"
        yield refusal("ack_policy retention", text, 10098)
    if consumer.deliver_policy != "all":
        text = f"{consumer.deliver_policy} would leave messages without a consumer; write all"
        yield refusal("deliver_policy retention", text, 10101)
    rival = next((other.name for other in others if not other.is_internal), None)
    if rival is not None and not consumer.filters:
        text = (
            f"is missing, and consumer {rival} takes messages too; give both of them filters that"
            " do not overlap"
        )
        yield refusal("filter_subject filter_subjects retention", text, 10099)
    yield from overlap_refusals(consumer, stream, others)


def overlap_refusals(
    consumer: ConsumerConfig, stream: StreamFields, others: Collection[ConsumerConfig]
) -> Iterator[ConfigRefusal]:
    """The refusals of filters that overlap with another consumer of a work queue; none on other streams."""
    if stream.retention != "workqueue":
        return
    key = "filter_subject" if consumer.filter_subject else "filter_subjects"
    for wanted in consumer.filters:
        for other in others:
            shared = _shared(wanted, other)
            if shared is not None:
                text = f"{wanted!r} overlaps with {shared} of consumer {other.name}; change one"
                yield refusal(f"{key} retention", text, 10100)


def overlapping_consumers(filters: Mapping[str, Sequence[str]]) -> tuple[str, str] | None:
    """The first two consumers with overlapping filters; None: each subject has one consumer.

    Args:
        filters: the filter subjects of each consumer, by its name; empty: every subject.
    """
    for (first, first_filters), (second, second_filters) in combinations(filters.items(), 2):
        if any(
            overlap(*pair) for pair in product(first_filters or (">",), second_filters or (">",))
        ):
            return first, second
    return None


def _shared(wanted: str, other: ConsumerConfig) -> str | None:
    """The filter of another consumer that overlaps, quoted, or `every subject`; None: none does."""
    if other.is_internal:
        return None
    if not other.filters:
        return "every subject"
    return next((repr(theirs) for theirs in other.filters if overlap(wanted, theirs)), None)
