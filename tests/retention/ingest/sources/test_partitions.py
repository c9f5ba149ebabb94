from __future__ import annotations

import pytest

from retention.ingest.sources.partitions import kinds_of, refusal_of


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["7", "-12", "0"], "bigint"),
        (["007", "010"], "string"),
        (["7", "007"], "string"),
        (["9223372036854775808"], "string"),
        (["2026-11-26", "2026-02-01"], "date"),
        (["2026-02-30"], "string"),
        (["1.5"], "string"),
        (["__HIVE_DEFAULT_PARTITION__", "3"], "bigint"),
        (["__HIVE_DEFAULT_PARTITION__"], "string"),
    ],
)
def test_no_value_of_a_column_loses_anything(values: list[str], kind: str) -> None:
    assert kinds_of(f"k={value}/f.json" for value in values) == {"k": kind}


def test_what_spark_took_as_numbers_stays_a_number() -> None:
    paths = ["code=007/a", "code=010/b"]
    assert kinds_of(paths, as_spark=True) == {"code": "bigint"}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (
            "code=0A1/a",
            "code=0A1/a: code=0A1 is not a bigint, the type of code when the source was first taken",
        ),
        ("a", "a lies in directories of the columns none, and the source has code"),
        (
            "code=1/x=2/a",
            "code=1/x=2/a lies in directories of the columns code, x, and the source has code",
        ),
        ("code=8/deep/er/a", None),
        ("code=__HIVE_DEFAULT_PARTITION__/a", None),
        ("code=007/a", None),
    ],
)
def test_a_value_that_does_not_fit_is_said(path: str, said: str | None) -> None:
    assert refusal_of(path, {"code": "bigint"}) == said
