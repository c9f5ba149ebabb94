"""Erasures in the ledger: the identities of erased messages, by which they are erased again after a restore."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from retention.core.documents import Digest
from retention.erasure.record import ErasureRecord, ErasureRequested
from retention.errors import DamagedError
from retention.rules.erase import ErasedMessages
from retention.storage import files
from retention.storage.checksum import parse_json, verified, with_checksum
from retention.storage.crash_points import Step, reached
from retention.storage.errors import first_line

_ENTRY = ".json"
_MESSAGES = ".parquet"
_IDENTITY = ["seq", "ts_ns"]
_IDENTITIES = pa.schema([(name, pa.int64()) for name in _IDENTITY])


class ErasureEntry(ErasureRequested):
    """An erasure as the ledger has it: no text of a message, a request or a reason."""

    messages_sha256: Digest | None
    """The digest of the file with the identities; None: it was done before the ledger began, and nobody can tell."""


@dataclass(frozen=True)
class ErasureLedger:
    """The erasures of one stream in a ledger."""

    home: str
    """The stream's directory in the ledger."""
    stream: str

    def ids(self) -> set[str]:
        """The ids of the erasures."""
        names = files.names(files.join(self.home, "erasures"))
        return {name.removesuffix(_ENTRY) for name in names if name.endswith(_ENTRY)}

    def has(self, erasure: str) -> bool:
        """Whether the ledger has an erasure."""
        return files.length(self._place(erasure, _ENTRY)) is not None

    def read(self, erasure: str) -> ErasureEntry:
        """The entry of an erasure.

        Raises:
            DamagedError: it cannot be read.
        """
        place = self._place(erasure, _ENTRY)
        try:
            return ErasureEntry.model_validate(verified(parse_json(files.read_bytes(place) or b"")))
        except (ValueError, AttributeError, ValidationError) as error:
            raise self._damaged(place, error) from error

    def messages(self, entry: ErasureEntry) -> ErasedMessages:
        """The erased messages by their identities: sequence and time.

        Raises:
            DamagedError: they cannot be read.
        """
        place = self._place(entry.id, _MESSAGES)
        content = files.read_bytes(place) or b""
        if hashlib.sha256(content).hexdigest() != entry.messages_sha256:
            raise self._damaged(place, ValueError("it is not as written"))
        try:
            rows = pq.read_table(pa.BufferReader(content), columns=_IDENTITY)
        except (ValueError, OSError, pa.ArrowException) as error:
            raise self._damaged(place, error) from error
        seqs, times = rows["seq"].to_pylist(), rows["ts_ns"].to_pylist()
        return ErasedMessages((), tuple(seqs), entry.below, tuple(times))

    def write(self, record: ErasureRecord, messages: Iterable[pa.Table]) -> None:
        """Write an erasure, its messages first.

        Args:
            record: the record in the warehouse.
            messages: the erased messages, in batches.
        """
        narrow = (batch.select(_IDENTITY).cast(_IDENTITIES) for batch in messages)
        rows = pa.concat_tables([_IDENTITIES.empty_table(), *narrow])
        each_once = rows.group_by(_IDENTITY).aggregate([])
        sink = io.BytesIO()
        pq.write_table(each_once.sort_by([(name, "ascending") for name in _IDENTITY]), sink)
        files.make_directory(files.join(self.home, "erasures"))
        files.replace(self._place(record.id, _MESSAGES), sink.getvalue())
        reached(Step.LEDGER_MESSAGES_WRITTEN)
        self._write(record, hashlib.sha256(sink.getvalue()).hexdigest())

    def write_earlier(self, record: ErasureRecord) -> None:
        """Write an erasure that was done before the ledger began."""
        files.make_directory(files.join(self.home, "erasures"))
        self._write(record, None)

    def _write(self, record: ErasureRecord, digest: str | None) -> None:
        entry = ErasureEntry(**record.requested(), messages_sha256=digest)
        content = json.dumps(with_checksum(entry.model_dump())).encode()
        files.replace(self._place(record.id, _ENTRY), content)
        reached(Step.LEDGER_ERASURE_WRITTEN)

    def _place(self, erasure: str, suffix: str) -> str:
        return files.join(self.home, "erasures", erasure + suffix)

    def _damaged(self, place: str, error: Exception) -> DamagedError:
        return DamagedError(
            f"{place}: this entry of the ledger cannot be read ({first_line(error)}), so it is unknown which messages "
            f"of {self.stream} were erased; nothing was removed; restore the file from a copy of the ledger"
        )
