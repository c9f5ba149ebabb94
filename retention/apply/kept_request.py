"""The request of an erasure, as its needle file keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from retention.apply.archive_survey import archives_of
from retention.apply.erasure_survey import ErasureSurvey
from retention.erasure.needle_file import NeedleFile
from retention.erasure.record import ErasureRecord
from retention.rules.erase import Erase, ErasedMessages


@dataclass(frozen=True)
class KeptRequest:
    """The request of an erasure."""

    request: Erase
    instants: tuple[tuple[int, int], ...]
    """Sequences and times of its messages, if it names sequences and there are archives."""


def kept_request(record: ErasureRecord, content: NeedleFile) -> KeptRequest:
    """The request of an erasure with a needle file."""
    named = content.request
    messages = ErasedMessages(
        tuple(named["subjects"]),
        tuple(named["seqs"]),
        record.below,
        tuple(named.get("times", ())),
    )
    instants = tuple(map(_instant, named.get("instants", ())))
    return KeptRequest(Erase(record.id, messages), instants)


def instants_to_keep(survey: ErasureSurvey) -> list[list[int]]:
    """The sequences and times of messages named by sequence, by which other histories' copies are recognized."""
    if not survey.request.messages.seqs or not archives_of(survey.opened):
        return []
    return [list(instant) for instant in sorted(survey.instants)]


def _instant(pair: Sequence[int]) -> tuple[int, int]:
    seq, ts_ns = pair
    return seq, ts_ns
