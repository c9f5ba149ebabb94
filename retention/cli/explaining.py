"""The command that explains one message of a stream, or rows of a table."""

# ruff: noqa: PLR0913, PLR0917  (typer makes options of parameters)
from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from retention.cli.app import app
from retention.cli.arguments import AsOf, Partition, complete_stream
from retention.cli.output import put_json, put_report
from retention.cli.settings import Settings, settings_of
from retention.errors import UsageError


@dataclass(frozen=True)
class RowPlace:
    """The options that name rows of a table: a key, or a file and a position in it."""

    key: str | None = None
    file: str | None = None
    row: int | None = None


@app.command()
def explain(
    ctx: typer.Context,
    name: Annotated[
        str,
        typer.Argument(metavar="STREAM|TABLE", show_default=False, autocompletion=complete_stream),
    ],
    seq: Annotated[
        int | None,
        typer.Argument(metavar="SEQ", show_default=False, help="The message's sequence."),
    ] = None,
    partition: Partition = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="COLUMN=VALUE,…", help="Of a table: the rows of this key."),
    ] = None,
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Of a table: the file of a row, with --row.")
    ] = None,
    row: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="The row's position in the file.")
    ] = None,
    as_of: AsOf = None,
) -> None:
    """Explain why a message or a row is kept or removed."""
    settings = settings_of(ctx)
    warehouse = settings.open()
    place = RowPlace(key, file, row)
    if name in warehouse.tables():
        if seq is not None or partition is not None:
            raise UsageError(
                f"{name}: is a table, whose rows have no sequence: name --key, or --file and --row"
            )
        _put_rows(settings, name, warehouse.instant(as_of), place)
        return
    if seq is None or place != RowPlace():
        raise UsageError(
            f"{name}: no table has this name; name a message by its sequence, without --key, --file and --row"
        )
    explanation = warehouse.log(name).explain(seq, as_of, partition or 0)
    if settings.format == "table":
        from retention.views.text import explanation_text

        put_report(explanation_text(explanation))
    else:
        put_json(settings, explanation.as_json(), [explanation.as_json()])


def _put_rows(settings: Settings, name: str, as_of_ns: int, place: RowPlace) -> None:
    """Print the explanation of rows of a table."""
    from retention.tables.wanted_key import parse_key
    from retention.views.table_explanation import table_explanation_json, table_explanation_text

    table = settings.open().table(name)
    key = None if place.key is None else parse_key(place.key, table.opened.policy.columns)
    explanation = table.explain(key, file=place.file, row=place.row, as_of=as_of_ns)
    if settings.format == "table":
        put_report(table_explanation_text(explanation))
    else:
        document = table_explanation_json(explanation)
        put_json(settings, document, [document])
