"""The table of docs/semantics/removals.md, executed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from retention.apply.requested import remove_now
from retention.engines.select import Engines
from retention.errors import UsageError
from retention.inspect.state import contents_of
from retention.rules.requests import purge_request
from tests.support.laying import START, File, Laid, lay
from tests.support.plain_store import opened_stream, store_of

PAGE = Path(__file__).parents[2] / "docs" / "semantics" / "removals.md"
ROW = re.compile(
    r"^\| (?P<asked>[^|]+) \| `(?P<body>\{.*?\})` \| (?P<removed>[^|]+) \| (?P<ends>[\d, ]+) \|$",
    re.M,
)
ROWS = [match.groupdict() for match in ROW.finditer(PAGE.read_text(encoding="utf-8"))]
OPTION = re.compile(r"--(subject|seq|keep) '?([^\s`']+)")


def sequences(words: str) -> list[int]:
    """The sequences in a cell of `removed`: `all`, `nothing`, `1 to 4`, `3, 6, 9`; a remark may follow."""
    said = re.split(r"[:;]|, and", words)[0].strip()
    if said in {"all", "nothing", "refused"}:
        return list(range(1, 10)) if said == "all" else []
    first, _, last = said.partition(" to ")
    return list(range(int(first), int(last) + 1)) if last else [int(one) for one in said.split(",")]


def test_the_page_has_its_table() -> None:
    assert len(ROWS) == 12


@pytest.mark.parametrize("row", ROWS, ids=[row["asked"] for row in ROWS])
def test_a_purge_does_what_its_row_says(tmp_path: Path, row: dict[str, str]) -> None:
    opened = opened_stream(tmp_path, START, subjects=(">",), no_ack=True)
    lay(opened, [File(1, [Laid(seq, "cab"[seq % 3]) for seq in range(1, 10)])])
    body = json.loads(row["body"])
    given = dict(OPTION.findall(row["asked"])) if body else {}
    options = {name.replace("subject", "filter"): value for name, value in given.items()}
    assert options == {name: str(value) for name, value in body.items()}
    before = store_of(opened).rows()["seq"].to_pylist()
    try:
        request = purge_request(body.get("filter"), body.get("seq"), body.get("keep"))
        with Engines("local") as engines:
            remove_now(opened, request, engines)
    except UsageError as error:
        assert "refused: bad request (10003)" in row["removed"], error  # noqa: PT017
    left = store_of(opened).rows()["seq"].to_pylist()
    assert sorted(set(before) - set(left)) == sequences(row["removed"])
    files, counters = store_of(opened).versions[-1]
    held = contents_of(files, counters.next_seq[0])
    assert f"{held.first_seq}, {held.last_seq}" == row["ends"]
