from __future__ import annotations

from pathlib import Path

import numpy as np
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


@pytest.mark.parametrize("name", ["orders.{}", "{:032x}.orders"])
def test_subjects_are_counted_alike_however_they_begin(name: str) -> None:
    drawn = np.random.default_rng(1).integers(0, 300, 1_000).tolist()
    rows = pa.table({"subject": [name.format(number) for number in drawn], "seq": range(1_000)})
    last = {name.format(number): seq for seq, number in enumerate(drawn)}
    assert count_subjects(rows).to_pylist() == [
        {"subject": subject, "messages": drawn.count(drawn[seq]), "last_seq": seq}
        for subject, seq in sorted(last.items())
    ]


def test_codes_of_dictionaries_are_counted_as_their_subjects() -> None:
    chunks = [
        pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(names))
        for codes, names in (([0, 1], ["b", "unused"]), ([2, 0, 2], ["b", "c", "a"]))
    ]
    coded = pa.table({"subject": pa.chunked_array(chunks), "seq": [1, 2, 3, 4, 5]})
    plain = coded.set_column(0, "subject", coded["subject"].cast(pa.string()))
    assert count_subjects(coded).equals(count_subjects(plain))
    assert count_subjects(coded.slice(0, 0)).num_rows == 0


def test_a_subject_twice_in_a_dictionary_is_one_subject() -> None:
    codes, names = pa.array([0, 1, 1], pa.int32()), pa.array(["a", "a"])
    rows = pa.table({"subject": pa.DictionaryArray.from_arrays(codes, names), "seq": [1, 2, 3]})
    assert count_subjects(rows).to_pylist() == [{"subject": "a", "messages": 3, "last_seq": 3}]


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
