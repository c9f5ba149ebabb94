from __future__ import annotations

import sys
from pathlib import Path

import pytest

from retention.engines.spark import jars
from retention.errors import UsageError


@pytest.fixture
def spark_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Python environment with a spark-submit that each test writes."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(jars, "launch_environment", lambda: {"SPARK_HOME": str(tmp_path)})
    monkeypatch.setattr(jars, "machine_java", lambda: tmp_path)
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.touch(mode=0o755)
    return program


@pytest.mark.usefixtures("spark_submit")
def test_missing_jars_are_one_sentence_that_names_the_remedy() -> None:
    with pytest.raises(UsageError, match=r"^Delta 4\.4\.0 [^\n]*make setup[^\n]*$"):
        jars.delta_jars()


def test_what_the_resolver_found_is_kept_for_later_starts(spark_submit: Path) -> None:
    spark_submit.write_text(
        "#!/bin/sh\nfor a; do case $a in spark.jars.ivy=*) d=${a#*=};; esac; done\n"
        'mkdir "$d/jars" && touch "$d/jars/b.jar" "$d/jars/a.jar"\n'
    )
    fetched = jars.fetch_delta_jars()
    assert [jar.name for jar in fetched] == ["a.jar", "b.jar"]
    spark_submit.write_text("#!/bin/sh\nexit 1\n")
    assert jars.fetch_delta_jars() == jars.delta_jars() == fetched


def test_the_jars_for_s3_come_without_the_bundle_of_the_whole_sdk(spark_submit: Path) -> None:
    spark_submit.write_text(
        "#!/bin/sh\nfor a; do case $a in spark.jars.ivy=*) d=${a#*=};; esac; done\n"
        'mkdir "$d/jars" && printf "%s\\n" "$@" > "$d/jars/asked.jar"\n'
    )
    assert jars.s3a_jars() == []
    (asked,) = jars.fetch_s3a_jars()
    said = asked.read_text().splitlines()
    wanted = said[said.index("--packages") + 1].split(",")
    left_out = said[said.index("--exclude-packages") + 1].split(",")
    assert wanted[0].startswith("org.apache.hadoop:hadoop-aws:")
    assert "software.amazon.awssdk:bundle" in left_out
    assert jars.s3a_jars() == [asked]


def test_a_repository_out_of_reach_is_one_sentence_and_its_words_go_to_a_file(
    spark_submit: Path,
) -> None:
    spark_submit.write_text("#!/bin/sh\necho 40 lines of ivy >&2\nexit 1\n")
    with pytest.raises(UsageError, match=r"^io\.delta:[^\n]*DEFAULT_ARTIFACT_REPOSITORY[^\n]*$"):
        jars.fetch_delta_jars()
    shared = Path(sys.prefix, "share", "lake-retention")
    assert [left.name for left in shared.iterdir()] == ["delta-jars.log"]
    assert (shared / "delta-jars.log").read_text() == "40 lines of ivy\n"
