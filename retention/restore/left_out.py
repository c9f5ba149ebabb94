"""Manifests of other histories, which a restore ignores: as values, and in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from retention.apply.archive_lineage import ends
from retention.errors import RefusedError
from retention.stores.archive_manifest import StoredManifest

_SHOWN = 3
"""The number of manifests that a sentence names."""


@dataclass(frozen=True)
class IgnoredManifest:
    """An ignored manifest, and the warehouse that wrote it."""

    manifest: str
    """Its location."""
    warehouse: str | None
    """None: an earlier release wrote it without naming its warehouse."""
    host: str | None

    @classmethod
    def of(cls, manifest: StoredManifest) -> IgnoredManifest:
        """The manifest as shown to users."""
        writer = manifest.content.writer
        return cls(
            manifest.location, *(None, None) if writer is None else (writer.warehouse, writer.host)
        )

    def as_json(self) -> dict[str, str | None]:
        """The fields as JSON values."""
        return dict(vars(self))

    def __str__(self) -> str:
        """The manifest in words."""
        by = "" if self.warehouse is None else f" (written by {self.warehouse} on {self.host})"
        return f"{self.manifest}{by}"


def left_out(others: Sequence[StoredManifest]) -> tuple[IgnoredManifest, ...]:
    """The last manifest of each history among some manifests."""
    return tuple(map(IgnoredManifest.of, ends(others)))


def refused_histories(stream: str, others: Sequence[StoredManifest]) -> RefusedError:
    """The error for manifests that are not known to belong to the wanted history."""
    last = left_out(others)
    return RefusedError(
        f"{stream}: {some_of(last)}: no commit of this table, and no manifest of its own, leads there, so the "
        "sequences may belong to other messages; nothing was changed; restore such a history into a new stream, with "
        f"--from {last[0].manifest} --as NEWNAME"
    )


def some_of(manifests: Sequence[IgnoredManifest]) -> str:
    """A few manifests in words, and the number of the others."""
    shown = ", ".join(map(str, manifests[:_SHOWN]))
    return f"{shown} and {len(manifests) - _SHOWN:,} more" if len(manifests) > _SHOWN else shown
