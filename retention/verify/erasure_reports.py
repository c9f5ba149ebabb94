"""Comparison of the records of erasures with their reports."""

from __future__ import annotations

from collections.abc import Iterator

from retention.erasure.record import Erasures
from retention.verify.finding import Damage


def damaged_reports(erasures: Erasures) -> Iterator[Damage]:
    """Each report that an ended erasure lacks, or that was changed.

    Raises:
        DamagedError: a record of an erasure cannot be read.
    """
    for record in erasures.all():
        if record.is_done and not erasures.has_intact_report(record.id):
            yield Damage(
                "erasures",
                erasures.report(record.id),
                f"erasure {record.id} ended, and its report is missing or was changed",
                "restore it from a copy of the warehouse",
            )
