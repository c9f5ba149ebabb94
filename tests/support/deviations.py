"""Named deviations of a server 2.15.1 from keeping exactly the messages that consumers need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from retention.consumers.state import from_json
from retention.formats.nats.backup import read_backup
from retention.interest.interest import interest_of
from retention.rules.jetstream.interest import Interest
from retention.stores.consumer_table import ConsumerRecord
from tests.support.interests import needs
from tests.support.judged_stream import Step, subjects_in


@dataclass(frozen=True)
class Difference:
    """A message kept by only one of server and pass."""

    step: Step
    seq: int
    removed_by_server: bool
    wanting: tuple[Interest, ...]
    """The interests of the consumers that match it."""
    check_floor: int
    """The server's check floor: below it, no consumer waits for a message above its own floor; 0 without consumers."""

    @property
    def is_unmatched(self) -> bool:
        return not self.wanting

    @property
    def is_needed(self) -> bool:
        return any(needs(replace(one, filters=()), self.seq, "") for one in self.wanting)

    @property
    def was_given(self) -> bool:
        return any((one.consumer, self.seq) in self.step.given for one in self.wanting)

    @property
    def was_passed_over(self) -> bool:
        needing = [one for one in self.wanting if needs(replace(one, filters=()), self.seq, "")]
        return all((one.consumer, self.seq) in self.step.passed_over for one in needing)

    @property
    def is_given_up(self) -> bool:
        return any(self.seq in one.redelivered for one in self.wanting)


BEGUN_ANEW = ("restored", "restarted")
DEVIATIONS: dict[str, Callable[[Difference], bool]] = {
    "no consumer is left: everything goes": lambda one: (
        one.removed_by_server and not one.check_floor
    ),
    "unmatched, but a consumer was edited or dropped": lambda one: (
        one.removed_by_server and one.is_unmatched and one.step.what in ("edited", "dropped")
    ),
    "unmatched, but settled by one who had it before": lambda one: (
        one.removed_by_server
        and one.is_unmatched
        and one.step.what == "worked"
        and any(seq == one.seq for _, seq in one.step.settled)
    ),
    "unmatched, but below every floor when a server began anew": lambda one: (
        one.removed_by_server
        and one.is_unmatched
        and one.step.what in BEGUN_ANEW
        and one.seq < one.check_floor
    ),
    "given up, but below every floor when a server began anew": lambda one: (
        one.removed_by_server
        and one.is_given_up
        and one.step.what in BEGUN_ANEW
        and one.seq < one.check_floor
    ),
    "given up just at the floor, and forgotten at a restart": lambda one: (
        one.removed_by_server
        and one.step.what == "restarted"
        and any(one.seq == each.ack_floor for each in one.wanting if one.seq in each.redelivered)
    ),
    "passed over before its consumer's filters were edited": lambda one: (
        one.removed_by_server and one.is_needed and one.was_passed_over
    ),
    "settled above a floor below which messages were given up, before a switch": lambda one: (
        not one.removed_by_server
        and one.step.was_limited
        and any(
            one.seq > each.ack_floor and not len(each.pending) and len(each.redelivered)
            for each in one.wanting
            if (each.consumer, one.seq) in one.step.given
        )
    ),
    "given up by one who was edited or dropped since": lambda one: (
        not one.removed_by_server and one.seq in one.step.forsaken
    ),
    "settled without acks, on a stream that was switched": lambda one: (
        not one.removed_by_server
        and one.step.was_limited
        and any(
            (each.consumer, one.seq) in one.step.given and not each.explicit for each in one.wanting
        )
    ),
    "passed by: none who wants it was ever given it": lambda one: (
        not one.removed_by_server and not one.is_unmatched and not one.was_given
    ),
}
"""The only allowed deviations (docs/semantics/consumers-release.md describes the server's behaviour)."""


def named(one: Difference) -> str:
    """The name of a difference's deviation; otherwise a description."""
    if one.is_needed and not one.removed_by_server:
        return f"needed, and let go by a pass: {one}"
    return next((name for name, is_it in DEVIATIONS.items() if is_it(one)), f"unknown: {one}")


def differences(step: Step, left: set[int]) -> list[Difference]:
    """The differences between a pass and the server."""
    found, subjects = left ^ set(step.held), subjects_in(step.before)
    assert found <= set(subjects), f"{step}: nobody published {found - set(subjects)}"
    interests = [
        interest_of(
            ConsumerRecord(name, one["config"], from_json(one["state"])),
            tuple(step.config["subjects"]),
        )
        for name, one in read_backup(step.states).consumers.items()
    ]
    check_floor = min((_check_floor(one, subjects) for one in interests), default=0)
    return [
        Difference(
            step,
            seq,
            seq in left,
            tuple(one for one in interests if _is_for(one, subjects[seq])),
            check_floor,
        )
        for seq in sorted(found)
    ]


def _is_for(one: Interest, subject: str) -> bool:
    return bool(one.matches(pa.chunked_array([[subject]]))[0])


def _check_floor(one: Interest, subjects: Mapping[int, str]) -> int:
    """The first matching message above a consumer's floor, or else the next sequence."""
    above = (seq for seq in sorted(subjects) if seq > one.ack_floor and _is_for(one, subjects[seq]))
    return next(above, max(subjects, default=0) + 1)
