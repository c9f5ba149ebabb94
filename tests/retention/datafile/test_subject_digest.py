from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from retention.datafile.subject_digest import SubjectDigest, count_subjects, digest_at, pack, unpack

ROWS = pa.table({"subject": ["b", "a", "b"], "seq": [1, 2, 5]})


def test_a_digest_counts_each_subject_once_sorted_and_comes_back_as_it_was() -> None:
    counted = count_subjects(ROWS)
    assert counted.to_pylist() == [
        {"subject": "a", "messages": 1, "last_seq": 2},
        {"subject": "b", "messages": 2, "last_seq": 5},
    ]
    for ids in (None, 0, 3):
        found = unpack(pack(SubjectDigest(counted, ids)))
        assert found.counts.equals(counted)
        assert found.ids == ids


def test_of_a_digest_with_any_byte_changed_nothing_is_believed(tmp_path: Path) -> None:
    content = pack(SubjectDigest(count_subjects(ROWS), 2))
    digest = digest_at(str(tmp_path / "digest"))
    for at in range(len(content)):
        changed = bytes([*content[:at], content[at] ^ 1, *content[at + 1 :]])
        (tmp_path / "digest").write_bytes(changed)
        assert digest.load() is None
    for torn in (content[:-1], b""):
        with pytest.raises(ValueError, match="not what was written"):
            unpack(torn)
