"""`history export --format html`: the account of each run as a page, with the digests of its records."""

from __future__ import annotations

import hashlib
import html
import re
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.support.sandboxes import ORDERS, Commands, commands, lines

HOSTILE = "</td><script>alert(1)</script>=1+1\u202egnp"
AS_OF = "2026-11-20T00:00:00Z"
NOW = 1_795_132_800
"""`AS_OF` in seconds since the epoch."""
TABLE = """\
  - {name: "a<b&c", location: "lake/<i>", time: at, unit: s, max_age: 30d}
"""


def page_of(command: Commands, *options: object) -> str:
    """The page, in which no text of data is markup or reorders a line, and each digest is that of a file."""
    file = command.folder / "evidence.html"
    done = command.run("history", "export", "--format", "html", "-o", file, *options)
    assert done.exit_code == 0, done.output
    page = re.sub(' data-name="[^"]*"', "", file.read_text(encoding="utf-8"))
    for markup in ("<script", "<b&", "<i>", "\u202e"):
        assert markup not in page
    records = re.findall(r"<td>([^<]*)</td><td><code>([0-9a-f]{64})</code></td>", page)
    for location, digest in records:
        content = Path(html.unescape(location)).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest
    assert len(records) >= 2 * (page.count("<h2>") - 2)
    assert re.search(r'<td class="n">[1-9]</td><td class="n">0</td><td><code>[0-9a-f]{64}', page)
    return page


def digest_of_json(command: Commands) -> str:
    printed = command.run("--format", "json", "history", "export").stdout
    return hashlib.sha256(printed.encode()).hexdigest()


def section(page: str, run: str) -> str:
    """The part of a page about a run."""
    [part] = [each for each in page.split("<h2>")[1:] if run in each.partition("</h2>")[0]]
    return part


def test_the_page_of_a_stream_accounts_for_undone_and_reclaimed_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = commands(
        tmp_path / "w", {**ORDERS, "max_msgs": 24, "max_age": "3650d", "grace": "0s"}
    )
    command.json("publish", "ORDERS", stdin="\n".join(lines(30)))
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", HOSTILE)
    first = command.json("apply", "--yes")["streams"][0]["run"]
    undo = command.json("undo", first)["run"]
    second = command.json("apply", "--yes")["streams"][0]["run"]
    time.sleep(0.02)
    command.json("reclaim", "--yes")
    page = page_of(command)
    [head] = re.findall(r'<td class="n">0</td><td><code>([0-9a-f]{64})</code>', page)
    assert command.run("verify", "--head", head).exit_code == 0
    done = command.run("verify", "--head", head, "--head", head[::-1])
    assert (done.exit_code, f"head {head[::-1]} is not in the chain" in done.stderr) == (6, True)
    assert digest_of_json(command) in page
    assert f"<td>undone by</td><td>{undo}</td>" in section(page, first)
    assert f"<td>undoes</td><td>{first}</td>" in section(page, undo)
    removed = section(page, second)
    assert "<td>reclaimed by</td>" in removed
    for part in (
        "max_msgs 24, 24 or more are newer",
        "1-6",
        "&quot;max_msgs&quot;: 24",
        "&lt;script",
    ):
        assert part in removed
    assert "No run began" in page_of(command, "--from", "2100-01-01")
    [record] = (tmp_path / "w" / "runs" / "ORDERS").glob(f"{second}.done.json")
    record.write_text(record.read_text().replace('"max_msgs": 24', '"max_msgs": 25'))
    done = command.run("verify")
    assert (done.exit_code, "ORDERS: damaged" in done.stdout) == (6, True)
    assert "is damaged" not in done.stderr


def test_the_page_of_a_table_in_place_counts_rows(tmp_path: Path) -> None:
    for days in (80, 0):
        at = pa.array([NOW - 86_400 * days] * 3, pa.int64())
        write_deltalake(tmp_path / "lake" / "<i>", pa.table({"at": at}), mode="append")
    (tmp_path / "retention.yaml").write_text(f"warehouse: .\ntables:\n{TABLE}")
    command = Commands(tmp_path)
    [entry] = command.json("apply", "--yes", "--as-of", AS_OF)["tables"]
    page = page_of(command)
    assert digest_of_json(command) in page
    removed = section(page, entry["run"])
    assert removed.startswith("a&lt;b&amp;c: apply")
    assert "<td>removed rows</td><td>3</td>" in removed
