"""The rows that a plan of a table removes, written to a file, and the statements that remove the same."""

from __future__ import annotations

from collections.abc import Sequence

from retention.cli.output import put_json, put_lines, say
from retention.cli.settings import Settings
from retention.core.wording import counted
from retention.errors import UsageError


def put_table_rows(
    settings: Settings, names: Sequence[str], as_of: str | None, rows: str | None, *, sql: bool
) -> None:
    """Plan a pass over one table, write its rows to a file, and print its statements.

    Args:
        settings: the settings of the command.
        names: the names that were given.
        as_of: the instant of the pass.
        rows: the place of the file; None: no rows are written.
        sql: whether to print the statements.

    Raises:
        UsageError: the names are not that of one table, or the file is refused.
    """
    from retention.tables.removed_rows import removed_rows
    from retention.views.removed_rows import check_rows_file, write_rows

    warehouse = settings.open()
    if len(names) != 1 or names[0] not in warehouse.tables():
        raise UsageError(
            f"{' '.join(names) or 'no name'}: --rows and --sql are of one table; name one of "
            f"{', '.join(warehouse.tables()) or 'none that the configuration lists'}"
        )
    if rows is not None:
        check_rows_file(rows)
    table = warehouse.table(names[0])
    plan = table.plan(warehouse.instant(as_of))
    if rows is not None:
        say(
            f"wrote {counted(write_rows(rows, removed_rows(table.opened, plan.plan)), 'row')} to {rows}"
        )
    if sql:
        statements = plan.sql()
        if settings.format == "table":
            closed = (each if each.startswith("--") else f"{each};" for each in statements)
            put_lines(line for each in closed for line in each.split("\n"))
        else:
            document = {"table": table.name, "plan_id": plan.plan.plan_id, "sql": statements}
            put_json(settings, document, [document])
