from __future__ import annotations

import pytest

from retention.errors import UsageError
from retention.views.analyst_view import view_statement


def test_the_statement_of_a_stream_and_of_a_topic() -> None:
    assert view_statement("lake.ORD`ERS", "s3://lake/o", ["a.b-c:decimal(9,2)"]) == (
        "CREATE OR REPLACE VIEW `lake`.`ORD``ERS` AS SELECT\n"
        "  seq,\n"
        "  subject,\n"
        "  timestamp_micros(ts_ns DIV 1000) AS time,\n"
        "  CAST(payload AS STRING) AS payload,\n"
        "  TRY_CAST(get_json_object(CAST(payload AS STRING), '$.a.b-c') AS DECIMAL(9,2)) AS `a.b-c`\n"
        "FROM delta.`s3a://lake/o`"
    )
    assert "SELECT\n  partition,\n  seq AS offset,\n  timestamp_micros" in view_statement(
        "clicks", "/lake/c", is_topic=True
    )


@pytest.mark.parametrize(
    "field", ["total", "total:", ":int", "a:money", "a'b:int", "a..b:int", "a[0]:int", "a:int) --"]
)
def test_a_field_of_another_form_is_refused(field: str) -> None:
    with pytest.raises(UsageError, match="is not FIELD:TYPE, such as"):
        view_statement("V", "/lake/o", [field])
