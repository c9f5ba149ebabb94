from __future__ import annotations

from retention.apply.archive_lineage import ancestors, leaves, links_of
from retention.stores.archive_manifest import ArchivedFile, ArchiveOrigin, Manifest, StoredManifest


def manifest(link: str | None, previous: str | None, *paths: str) -> StoredManifest:
    copies = tuple(ArchivedFile(path, 0, 1, 1, "sha", 1, 1, 1, 1, 0, 0, {}, []) for path in paths)
    content = Manifest(
        ArchiveOrigin("ORDERS", "t"),
        is_topic=False,
        plan_id="plan",
        as_of_ns=0,
        by_rule={},
        files=copies,
        previous=previous,
    )
    return StoredManifest(content, f"{link}.json", link)


PAST = [manifest("a", None, "1"), manifest("b", "a", "2")]


def test_a_history_is_what_leads_to_its_head() -> None:
    parted = [*PAST, manifest("c", "b", "3"), manifest("x", "b", "4")]
    assert ancestors("c", links_of(parted)) == {"a", "b", "c"}
    assert ancestors("x", links_of(parted)) == {"a", "b", "x"}
    assert ancestors(None, links_of(parted)) == set()
    assert ancestors("gone", links_of(parted)) == {"gone"}
    assert ancestors("m", {"m": "n", "n": "m"}) == {"m", "n"}, "made by hand"


def test_the_ends_of_two_histories_are_two() -> None:
    assert leaves(PAST) == PAST[1:]
    parted = [*PAST, manifest("c", "b", "3"), manifest("x", "b", "4")]
    assert leaves(parted) == parted[2:]
    old = manifest(None, None, "0")
    assert leaves([old, *PAST]) == PAST[1:]


def test_a_killed_run_whose_files_were_archived_again_ends_no_history() -> None:
    killed, again = manifest("k", "b", "3"), manifest("c", "b", "3", "4")
    assert leaves([*PAST, killed, again]) == [again]
    assert leaves([*PAST, killed, manifest("c", "b", "3")]) == [manifest("c", "b", "3")]
