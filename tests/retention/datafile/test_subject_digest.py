from __future__ import annotations

import pyarrow as pa

from retention.datafile.subject_digest import count_subjects, pack, unpack

ROWS = pa.table({"subject": ["b", "a", "b"], "seq": [1, 2, 5]})


def test_a_digest_counts_each_subject_once_sorted_and_comes_back_as_it_was() -> None:
    counted = count_subjects(ROWS)
    assert counted.to_pylist() == [
        {"subject": "a", "messages": 1, "last_seq": 2},
        {"subject": "b", "messages": 2, "last_seq": 5},
    ]
    found = unpack(pack(counted))
    assert found is not None
    assert found.equals(counted)


def test_of_a_digest_with_any_byte_changed_nothing_is_believed() -> None:
    content = pack(count_subjects(ROWS))
    for at in range(len(content)):
        changed = bytes([*content[:at], content[at] ^ 1, *content[at + 1 :]])
        assert unpack(changed) is None
    assert unpack(content[:-1]) is None
    assert unpack(b"") is None
