"""The how-to pages: each command has the documented output in a directory with the page's files alone.

Commands on clusters are not executed: their options are looked up.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
import yaml

from tests.support.command_line import invoke
from tests.support.jobs import run_job
from tests.support.pages import BLOCK, blocks, executed, write_files

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
CLUSTERS = ("databricks", "emr", "kubernetes", "spark-on-yarn")
OF_INGEST = "kafka-dump"
"""The page that tests/docs/test_ingest.py executes, on Spark."""
OF_SYNC = "sync-from-a-live-server"
"""The page that tests/docs/test_sync.py executes, beside a server."""
OF_IGGY = "sync-an-iggy-topic"
"""The page that tests/docs/test_sync_iggy.py executes, with a server's recorded answers."""
_ELSEWHERE = (*CLUSTERS, OF_INGEST, OF_SYNC, OF_IGGY)
PAGES = sorted(page for page in HOW_TO.glob("*.md") if page.stem not in _ELSEWHERE)
JOB = re.compile(r"(?:jobs/|retention-job,? )(\w+)")
OPTION = re.compile(r"(?<!\S)--[\w-]+|(?<=\")--[\w-]+")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_print_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an intended change, `ACCEPT=1 pytest tests/docs/test_how_to.py` writes the new output into the pages."""
    text = page.read_text(encoding="utf-8")
    assert blocks(text, "console")
    write_files(text, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert executed(page, tmp_path) == page.read_text(encoding="utf-8")


def test_pages_are_short() -> None:
    for page in HOW_TO.glob("*.md"):
        assert len(page.read_text(encoding="utf-8").split()) <= 300, page.name


def command_lines(page: str) -> Iterator[str]:
    """The lines of a page's blocks, continued ones and JSON as one line."""
    for language, content in BLOCK.findall((HOW_TO / f"{page}.md").read_text(encoding="utf-8")):
        joined = content.replace("\n", " ") if language == "json" else content
        yield from joined.replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("page", CLUSTERS)
def test_the_options_of_commands_on_clusters_exist(page: str, tmp_path: Path) -> None:
    jars = Path(pyspark.__file__).parent / "jars"
    with zipfile.ZipFile(next(jars.glob("spark-launcher_*.jar"))) as jar:
        of_spark = jar.read("org/apache/spark/launcher/SparkSubmitOptionParser.class").decode(
            "latin-1"
        )
    jobs = 0
    for line in command_lines(page):
        submitted, *job = JOB.split(line, maxsplit=1)
        if job:
            jobs += 1
            usage = run_job(job[0], tmp_path, "--help").stdout
            assert all(f"{option} " in usage for option in OPTION.findall(job[1])), line
        if "spark-submit" in submitted:
            assert all(option in of_spark for option in OPTION.findall(submitted)), line
        elif submitted.startswith("retention "):
            usage = invoke([*submitted.split()[1:2], "--help"]).stdout
            assert all(f"{option} " in usage for option in OPTION.findall(submitted)), line
    assert jobs


def test_kubernetes_retries_the_codes_for_which_a_retry_helps_and_kills() -> None:
    [text] = blocks((HOW_TO / "kubernetes.md").read_text(encoding="utf-8"), "yaml")
    [rule] = yaml.safe_load(text)["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    recover = (HOW_TO.parent / "recover.md").read_text(encoding="utf-8")
    [helped] = re.findall(r"^\| ([\d, ]+) \| yes \|", recover, re.MULTILINE)
    assert set(rule["onExitCodes"]["values"]) == {137, *map(int, helped.split(", "))}
