"""Lineage of an archive's manifests: those of one table's history, separated from those of its copies; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from retention.stores.archive_manifest import StoredManifest

Links = Mapping[str, str | None]
"""Link of a manifest → link of its predecessor in its history; None: it was the first."""


def links_of(manifests: Iterable[StoredManifest]) -> Links:
    """The links of manifests; manifests of earlier releases have none."""
    return {
        manifest.link: manifest.content.previous
        for manifest in manifests
        if manifest.link is not None
    }


def ancestors(head: str | None, links: Links) -> set[str]:
    """The links of a manifest and of all its known predecessors.

    >>> sorted(ancestors("c", {"c": "b", "b": "a", "x": "a"}))
    ['a', 'b', 'c']
    """
    lineage: set[str] = set()
    while head is not None and head not in lineage:
        lineage.add(head)
        head = links.get(head)
    return lineage


def leaves(manifests: Sequence[StoredManifest]) -> list[StoredManifest]:
    """The manifests without a successor, except those with files that are all in others.

    One leaf ends one history. A run killed before its commit leaves a leaf as well; the next run archives its files
    again.
    """
    linked = [manifest for manifest in manifests if manifest.link is not None]
    followed = {manifest.content.previous for manifest in linked}
    last = [manifest for manifest in linked if manifest.link not in followed]
    for end in list(last):
        rest = [manifest for manifest in manifests if manifest is not end]
        if len(last) > 1 and not unnamed_files(end, files_of(rest)):
            last.remove(end)
    return last


def ends(manifests: Sequence[StoredManifest]) -> list[StoredManifest]:
    """The last manifest of each history, and those of earlier releases, each a history of its own."""
    return [*leaves(manifests), *(manifest for manifest in manifests if manifest.link is None)]


def files_of(manifests: Iterable[StoredManifest]) -> set[tuple[str, str]]:
    """The path and SHA-256 of every file that manifests name."""
    return {(file.path, file.sha256) for manifest in manifests for file in manifest.content.files}


def unnamed_files(manifest: StoredManifest, named: Collection[tuple[str, str]]) -> list[str]:
    """Paths of a manifest's files that are not among `named` (path and SHA-256)."""
    return [file.path for file in manifest.content.files if (file.path, file.sha256) not in named]
