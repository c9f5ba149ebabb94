"""The findings of a verification, and its result, as values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from retention.core.display import Displayed
from retention.core.json_object import JsonObject
from retention.core.outcomes import sentence_of
from retention.core.spoken_commands import command
from retention.core.wording import counted
from retention.errors import RetentionError, StorageError, VerificationError
from retention.stores.sidecar.last_verification import LastVerification

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

About = TypeVar("About")
Verdict = Literal["ok", "unverified", "damaged"]


@dataclass(frozen=True)
class Damage:
    """Something that differs from what was written or recorded."""

    check: str
    """The name of the check that found it."""
    subject: str
    """The file, record or counter, as a location or name."""
    detail: str
    remedy: str


@dataclass(frozen=True)
class Unverified:
    """A file without a digest of its content: its rows agree with the log, and a changed payload would not show."""

    subject: str
    """The location of the file."""
    reason: str


@dataclass(frozen=True, repr=False)
class Verification(Displayed):
    """The result of a verification of one stream or table."""

    name: str
    kind: Literal["stream", "table"]
    started_ns: int
    """The wall clock at its start; of a resumed one, at the start of the interrupted one."""
    ended_ns: int
    version: int
    """The version of the table; -1: there is none."""
    files: int
    """The files of the table."""
    read_files: int
    """The files whose content was read; fewer than `files` for a sample."""
    read_bytes: int
    sample: float | None
    """The share of the files to read; None: all."""
    resumed_files: int
    """The files that an interrupted verification had read before."""
    recorded: int
    """The files whose digest this verification recorded."""
    damages: tuple[Damage, ...]
    unverified: tuple[Unverified, ...]
    has_record: bool = True
    """Whether the verification itself is recorded; read-only storage gets no record."""

    @property
    def verdict(self) -> Verdict:
        """`damaged` with any damage; `unverified` if a file has no digest; otherwise `ok`."""
        if self.damages:
            return "damaged"
        return "unverified" if self.unverified else "ok"

    def summary(self) -> LastVerification:
        """The result in numbers."""
        return LastVerification(
            self.started_ns,
            self.ended_ns,
            self.version,
            self.verdict,
            self.files,
            self.read_files,
            self.sample,
            len(self.damages),
            len(self.unverified),
        )

    def as_json(self) -> JsonObject:
        """The result as JSON values."""
        fields = {name: value for name, value in vars(self).items() if name not in ("name", "kind")}
        return {
            self.kind: self.name,
            "verdict": self.verdict,
            **fields,
            "damages": [asdict(each) for each in self.damages],
            "unverified": [asdict(each) for each in self.unverified],
        }

    def to_pandas(self) -> pd.DataFrame:
        """The findings, one per row: name, verdict, check, subject, detail, remedy."""
        import pandas as pd

        names = ["name", "verdict", "check", "subject", "detail", "remedy"]
        damaged = [
            (self.name, "damaged", each.check, each.subject, each.detail, each.remedy)
            for each in self.damages
        ]
        others = [
            (self.name, "unverified", "digest", each.subject, each.reason, "")
            for each in self.unverified
        ]
        return pd.DataFrame([*damaged, *others], columns=names)


Check = Callable[[About], Iterator[Damage]]
"""One check: a function from what is verified to the damages that it finds."""


def damages_of(checks: Iterable[tuple[str, Check[About]]], about: About) -> Iterator[Damage]:
    """The damages that named checks find; the refusal or error of a check is its damage, and the others go on.

    Raises:
        StorageError: the storage failed, so nothing is known.
    """
    for name, check in checks:
        try:
            yield from check(about)
        except StorageError:
            raise
        except RetentionError as error:
            yield damage_of_error(name, "", error)


def ledger_damages(
    ledger: str | None, name: str, missing: Callable[[], Sequence[str]]
) -> Iterator[Damage]:
    """The damage of records that only the ledger has.

    Args:
        ledger: its location; None: there is none.
        name: the stream or table.
        missing: the function that lists these records.
    """
    if ledger is None:
        return
    try:
        records = missing()
    except StorageError as error:
        yield damage_of_error("ledger", ledger, error)
        return
    if records:
        more = f" and {counted(len(records) - 1, 'other record')}" if len(records) > 1 else ""
        yield Damage(
            "ledger",
            name,
            f"the warehouse lacks {records[0]}{more} of the ledger {ledger}, as after a restore from a backup",
            f"the next run that removes applies them: {command('apply', name, options='--yes')}",
        )


def damage_of_error(check: str, subject: str, error: Exception) -> Damage:
    """The damage for an error of reading: its sentence, with the remedy as the last clause."""
    text = sentence_of(error).replace("; nothing was changed", "")
    detail, _, remedy = text.rpartition("; ")
    return Damage(check, subject, detail or text, remedy)


def exit_code_of_findings(results: Iterable[Verification | None]) -> int:
    """The exit code of verifications: 6 with any damage, otherwise 0."""
    is_damaged = any(each is not None and each.damages for each in results)
    return VerificationError.exit_code if is_damaged else 0
