from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from retention.delta.features import ALLOWED, refusal
from retention.delta.shapes import LIVE_FILES
from retention.delta.snapshot import DeltaSnapshot
from tests.support.delta_tables import metadata


def table(
    *paths: str, vector: Any = None, protocol: Any = None, **properties: str
) -> DeltaSnapshot:
    columns = {"path": [*paths], "vector": [vector] * len(paths)}
    arrays = [pa.array(columns.get(f.name, [None] * len(paths)), f.type) for f in LIVE_FILES]
    described = metadata(("id", "long"), **properties)["metaData"]
    live = pa.Table.from_arrays(arrays, schema=LIVE_FILES)
    return DeltaSnapshot(
        "/lake/t", 3, protocol or {"minReaderVersion": 1, "minWriterVersion": 6}, described, live
    )


def features(*names: str, **versions: int) -> dict[str, Any]:
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": [*names],
        "writerFeatures": [*names],
        **versions,
    }


ABSOLUTE = {
    "storageType": "p",
    "pathOrInlineDv": "s3://lake/u/x.bin",
    "offset": 1,
    "sizeInBytes": 1,
    "cardinality": 1,
}
REFUSED = {
    "catalogManaged": table(protocol=features("appendOnly", "catalogManaged")),
    "a feature of next year": table(protocol=features("a feature of next year")),
    "reader version 4": table(protocol=features(minReaderVersion=4)),
    "writer version 8": table(protocol=features(minWriterVersion=8)),
    "delta.appendOnly": table(**{"delta.appendOnly": "TRUE"}),
    "delta.coordinatedCommits.commitCoordinator-preview": table(
        **{"delta.coordinatedCommits.commitCoordinator-preview": "dynamodb"}
    ),
    "file:/lake/u/x.parquet": table("a.parquet", "file:/lake/u/x.parquet"),
    "/lake/t2/x.parquet": table("/lake/t2/x.parquet"),
    "s3a://lake/t/x.parquet": table("s3a://lake/t/x.parquet"),
    "s3://lake/u/x.bin": table("a.parquet", vector=ABSOLUTE),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_is_refused_by_the_name_of_its_obstacle(name: str) -> None:
    sentence = refusal(REFUSED[name]) or ""
    assert sentence.startswith("/lake/t: ")
    assert name in sentence
    assert "nothing was changed; " in sentence


@pytest.mark.parametrize(
    "state",
    [
        table("p=1/a.parquet", "a%20b:c.parquet"),
        table(protocol=features(*ALLOWED)),
        table("file:///lake/t/x.parquet", "/lake/t/y.parquet"),
        table("a", vector={**ABSOLUTE, "storageType": "u", "pathOrInlineDv": "s3://"}),
        table(**{"delta.appendOnly": "false"}),
    ],
)
def test_other_tables_are_not(state: DeltaSnapshot) -> None:
    assert refusal(state) is None
