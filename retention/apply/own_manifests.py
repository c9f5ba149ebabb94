"""The manifests of an archive that provably belong to one table's history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from retention.apply.archive_lineage import Links, ancestors, files_of, links_of, unnamed_files
from retention.context.context import OpenedStream
from retention.history.kinds import PlannedRun
from retention.history.runs import History, history_of
from retention.ports import Snapshot
from retention.stores.archive_manifest import (
    ArchiveOrigin,
    StoredManifest,
    directory_of,
    link_in,
    link_of,
    read_manifests,
)


@dataclass(frozen=True)
class Home:
    """The present table, by which its own manifests are recognized."""

    origin: ArchiveOrigin
    head: str | None
    """The link of the newest manifest that a commit of the table named."""
    version: int
    live: frozenset[str]
    """Paths of the live files."""
    history: History
    place: str | None
    """The configured archive."""


def home_of(opened: OpenedStream, snapshot: Snapshot) -> Home:
    """The table of a stream, for `open_archive`."""
    counters = snapshot.counters
    return Home(
        ArchiveOrigin(opened.name, snapshot.table_id, counters.epoch),
        link_of(counters.archive_head),
        snapshot.version,
        frozenset(snapshot.files["path"].to_pylist()),
        history_of(opened.warehouse, opened.name),
        opened.config.archive,
    )


def own_manifests(manifests: Sequence[StoredManifest], home: Home) -> list[StoredManifest]:
    """The manifests that the history of a table wrote, each proven.

    There are three proofs: a commit of the table, or one of its own manifests, names the manifest; an earlier release
    wrote it, and the run history has the run as done; or each of its files is live in the table, or in another manifest
    of its own.
    """
    links = links_of(manifests)
    proven = ancestors(home.head, links)
    if any(manifest.link not in proven for manifest in manifests):
        runs = _Runs.of(home)
        proven = ancestors(home.head, {**_links_at(home), **runs.links, **links})
        accepted = [
            manifest for manifest in manifests if manifest.link in proven or runs.has(manifest)
        ]
    else:
        accepted = list(manifests)
    known = files_of(accepted)
    rest = without(manifests, accepted)
    return accepted + [
        manifest for manifest in rest if home.live.issuperset(unnamed_files(manifest, known))
    ]


def without(
    manifests: Sequence[StoredManifest], some: Sequence[StoredManifest]
) -> list[StoredManifest]:
    """The manifests that are not among others, by location."""
    locations = {manifest.location for manifest in some}
    return [manifest for manifest in manifests if manifest.location not in locations]


@dataclass(frozen=True)
class _Runs:
    """The runs of a history that committed and archived."""

    names: frozenset[str]
    """Names of runs and of their plans, by which earlier releases named manifests."""
    links: Links

    @classmethod
    def of(cls, home: Home) -> _Runs:
        """The runs in the history of a table's newest version."""
        names: set[str] = set()
        links: dict[str, str | None] = {}
        for record in home.history.outcomes():
            after = record.version_after
            if record.is_done and (after is None or after <= home.version):
                names.add(record.run)
                if isinstance(record, PlannedRun) and record.plan_id is not None:
                    names.add(record.plan_id)
            archived = record.archived
            link = None if archived is None else link_in(archived.manifest)
            if link is not None and archived is not None:
                links[link] = archived.previous
        return cls(frozenset(names), links)

    def has(self, manifest: StoredManifest) -> bool:
        """Whether an earlier release wrote a manifest for one of the runs."""
        return manifest.link is None and manifest.content.plan_id in self.names


def _links_at(home: Home) -> Links:
    """The links of the manifests in the configured archive, which may have changed over time."""
    if home.place is None:
        return {}
    return links_of(read_manifests(directory_of(home.place, home.origin)))
