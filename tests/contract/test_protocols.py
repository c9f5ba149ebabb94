"""No command upgrades a table's protocol: the table's owner decides about the requirements on other programs."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, TableFeatures

from retention.errors import RefusedError
from tests.support.sandboxes import Commands, commands, lines, opened

FEATURES = {
    "none": None,
    "appendOnly": TableFeatures.AppendOnly,
    "invariants": TableFeatures.Invariants,
    "checkConstraints": TableFeatures.CheckConstraints,
    "generatedColumns": TableFeatures.GeneratedColumns,
    "changeDataFeed": TableFeatures.ChangeDataFeed,
    "deletionVectors": TableFeatures.DeletionVectors,
    "v2Checkpoint": TableFeatures.V2Checkpoint,
    "timestampNtz": TableFeatures.TimestampWithoutTimezone,
    "variantType": TableFeatures.VariantType,
}
SAMPLES = ("changeDataFeed", "deletionVectors")
"""One feature of writers only, and one of readers and writers."""
ASKED = FEATURES if os.environ.get("RETENTION_FOREIGN") == "all" else SAMPLES
ORDERS = {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 40, "segment_span": "1d"}
REMOVED = "delta.deletedFileRetentionDuration"


def configured(folder: Path, **changed: Any) -> Commands:
    archive = str(folder / "archive")
    return commands(folder, {**ORDERS, "archive": archive, **changed}, format="delta")


def laid(folder: Path, feature: str, **changed: Any) -> Commands:
    """Seventy-two messages, an hour apart, on a table with a feature, which upgraded the protocol."""
    given = configured(folder)
    given.json("publish", "ORDERS", stdin="\n".join(lines(72)))
    used = FEATURES[feature]
    if used is not None:
        table(folder).alter.add_feature([used], allow_protocol_versions_increase=True)
    return configured(folder, **changed)


def table(folder: Path) -> DeltaTable:
    return DeltaTable(str(folder / "streams/ORDERS/messages"))


def protocol(folder: Path) -> tuple[int, int, set[str], set[str]]:
    listed = table(folder).protocol()
    return (
        listed.min_reader_version,
        listed.min_writer_version,
        set(listed.reader_features or ()),
        set(listed.writer_features or ()),
    )


@pytest.mark.parametrize("feature", ASKED)
def test_no_command_makes_a_protocol_grow(tmp_path: Path, feature: str) -> None:
    given = laid(tmp_path, feature, grace="3d")
    before = protocol(tmp_path)

    def run(*words: object, stdin: str | None = None) -> Any:
        answer = given.json(*words, stdin=stdin)
        assert protocol(tmp_path) == before, words
        return answer

    saved = tmp_path / "plan.json"
    message = json.dumps({"subject": "orders.new", "data": "more"})
    run("plan", "ORDERS", "-o", saved)
    run("apply", saved, "--yes")
    run("publish", "ORDERS", stdin=message)
    run("undo", run("history", "ORDERS")[0]["run"])
    run("apply", "ORDERS", "--yes")
    run("restore", "ORDERS", "--seq", "1..5")
    run("consumer", "add", "ORDERS", "billing")
    run("consumer", "rm", "ORDERS", "billing", "--yes")
    run("delete", "ORDERS", 70, "--yes")
    run("purge", "ORDERS", "--keep", 2, "--yes")
    run("publish", "ORDERS", stdin=message)
    run("apply", "ORDERS", "--yes")
    run("doctor")
    log = tmp_path / "streams/ORDERS/messages/_delta_log"
    assert any(".checkpoint." in file.name for file in log.iterdir())


@pytest.mark.parametrize("feature", ASKED)
def test_a_grace_that_cannot_be_followed_is_said_once_with_what_the_owner_runs(
    tmp_path: Path, feature: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = laid(tmp_path, feature, grace="3d")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            given.json("apply", "ORDERS", "--yes")
    [sentence] = [text for text in caplog.messages if REMOVED in text]
    place = tmp_path / "streams/ORDERS/messages"
    statement = (
        f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('{REMOVED}' = 'interval 259200 seconds')"
    )
    follows = feature == "none"
    assert (statement in sentence) != follows
    found = [one for one in given.json("doctor") if one["check"] == "grace"]
    assert [statement in one["remedy"] for one in found] == ([] if follows else [True])


def test_a_table_that_was_made_unusable_before_is_used_again(tmp_path: Path) -> None:
    given = laid(tmp_path, "deletionVectors")
    table(tmp_path).alter.set_table_properties({REMOVED: "interval 604800 seconds"})
    assert "variantType" in protocol(tmp_path)[2]
    assert given.json("apply", "ORDERS", "--yes")["streams"][0]["removed_messages"] == 32
    assert given.json("publish", "ORDERS", stdin=lines(1)[0])
    assert given.json("state", "ORDERS")[0]["messages"] == 41


def test_a_column_of_the_type_is_refused_by_name(tmp_path: Path) -> None:
    laid(tmp_path, "variantType")
    log = tmp_path / "streams/ORDERS/messages/_delta_log"
    entries = map(json.loads, (log / f"{0:020d}.json").read_bytes().splitlines())
    metadata = next(entry for entry in entries if "metaData" in entry)
    columns = json.loads(metadata["metaData"]["schemaString"])
    columns["fields"].append({"name": "said", "type": "variant", "nullable": True, "metadata": {}})
    metadata["metaData"]["schemaString"] = json.dumps(columns)
    newest = table(tmp_path).version()
    info = {"commitInfo": {"timestamp": 1, "operation": "ADD COLUMNS"}}
    content = "".join(json.dumps(line) + "\n" for line in (info, metadata))
    (log / f"{newest + 1:020d}.json").write_text(content)
    stream = opened(tmp_path, ORDERS, format="delta").stream("ORDERS")
    with pytest.raises(RefusedError, match="variantType"):
        stream.plan()
