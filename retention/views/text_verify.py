"""Verifications as text and JSON entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from retention.core.outcomes import Outcome, failure_entry
from retention.core.units import format_size
from retention.core.wording import counted

if TYPE_CHECKING:
    from retention.core.json_object import JsonObject
    from retention.verify.finding import Verification

_MOST_UNVERIFIED = 10


def verification_text(result: Verification) -> list[str]:
    """Lines for a stream or table: its verdict, then each damage with its remedy, and the files without a digest."""
    return [f"{result.name}: {verdict_clause(result)}", *_findings(result)]


def verdict_clause(result: Verification) -> str:
    """The verdict of a verification in one clause."""
    if result.version < 0 and not result.damages:
        return "nothing was written yet"
    unrecorded = (
        [] if result.has_record else ["this is not recorded, because the storage is read-only"]
    )
    return f"{result.verdict}: {'; '.join([*_sums(result), _read(result), *unrecorded])}"


def _sums(result: Verification) -> Iterator[str]:
    if result.damages:
        yield counted(len(result.damages), "finding")
    if result.unverified:
        yield counted(len(result.unverified), "file is unverified", "files are unverified")
    if result.recorded:
        yield f"recorded the digest of {counted(result.recorded, 'file')}"


def _read(result: Verification) -> str:
    read = f"read {result.read_files:,} of {counted(result.files, 'file')}"
    ours = ", those that runs wrote" if result.kind == "table" else ""
    resumed = (
        f", {result.resumed_files:,} of them before an interruption" if result.resumed_files else ""
    )
    return f"{read} ({format_size(result.read_bytes)}){ours}{resumed}"


def _findings(result: Verification) -> Iterator[str]:
    for damage in result.damages:
        yield f"  {damage.check}: {damage.subject}: {damage.detail}"
        yield f"    → {damage.remedy}"
    for each in result.unverified[:_MOST_UNVERIFIED]:
        yield f"  unverified: {each.subject}: {each.reason}"
    rest = len(result.unverified) - _MOST_UNVERIFIED
    if rest > 0:
        yield f"  and {counted(rest, 'more unverified file')}: --format json lists all"


def verification_entry(outcome: Outcome[Verification]) -> JsonObject:
    """The JSON entry of a stream; every requested stream has one."""
    entry = failure_entry(outcome) if outcome.value is None else outcome.value.as_json()
    return {**entry, "seconds": round(outcome.seconds, 6)}


def table_verification_entry(outcome: Outcome[Verification]) -> JsonObject:
    """The JSON entry of a table; every requested table has one."""
    from retention.views.json_entries import table_entry

    return {**table_entry(outcome), "seconds": round(outcome.seconds, 6)}
