"""An example and the exit codes of every command, for the end of its help."""

from __future__ import annotations

from collections.abc import Iterator

import typer

MEANINGS = {
    0: "done",
    2: "usage, configuration or permission; no such name",
    3: "something would be removed (--exit-code), or a stream lags (--max-lag)",
    4: "refused, nothing was changed; or done, and a stream is unlisted (unlisted: fail)",
    5: "some of several streams failed",
    6: "damaged or missing data, nothing committed",
    7: "a key has another revision than expected, nothing written",
    75: "busy, or the table moved: try again",
    130: "interrupted",
    143: "terminated",
}
"""Exit code → its meaning, for the help of commands; the code of a defect is omitted there."""
_LOOK = (0, 2, 6)
_LOOK_ALL = (0, 2, 5, 6)
_CHANGE = (0, 2, 4, 6, 75, 130, 143)
_DECIDE = (0, 2, 4, 6, 7, 75, 130, 143)
_CHANGE_ALL = (0, 2, 4, 5, 6, 75, 130, 143)
EXAMPLES: dict[str, tuple[str, tuple[int, ...]]] = {
    "init": ("init lake", (0, 2, 4)),
    "adopt": ("adopt s3://lake/events --time event_ts", (0, 2, 4, 6, 75)),
    "validate": ("validate --config retention.yaml", (0, 2, 4)),
    "publish": ("publish ORDERS orders.jsonl --writer loader --batch 7", _CHANGE),
    "import nats-backup": ("import nats-backup ORDERS.arc", _CHANGE_ALL),
    "import iggy-log": ("import iggy-log data/streams/1/topics/1 --topic clicks", _CHANGE),
    "export nats-backup": ("export nats-backup ORDERS ORDERS.arc", _LOOK),
    "mirror": ("mirror ORDERS_COPY", _CHANGE_ALL),
    "sync iggy": ("sync iggy clicks --server 127.0.0.1:8090", _CHANGE_ALL),
    "sync nats": ("sync nats ORDERS --context prod", _CHANGE_ALL),
    "plan": ("plan ORDERS --as-of now-1d --exit-code", (0, 2, 3, 4, 5, 6)),
    "replay": ("replay ORDERS --set max_msgs_per_subject=1 --at now-1d --at now", (0, 2, 4, 6)),
    "simulate": ("simulate ORDERS --set max_age=7d --at now+30d", (0, 2, 4, 6)),
    "apply": ("apply ORDERS --as-of 2026-11-20 --yes", _CHANGE_ALL),
    "purge": ("purge ORDERS --subject 'orders.old.>' --dry-run", _CHANGE),
    "delete": ("delete ORDERS 1041 --dry-run", _CHANGE),
    "delete-segments": ("delete-segments clicks 0 2 --dry-run", _CHANGE),
    "drop": ("drop ORDERS --dry-run", _CHANGE),
    "erase": ("erase ORDERS --subject orders.eve --reason 'request 7' --dry-run", _CHANGE),
    "undo": ("undo 20261121T103209.739426394Z-a1b2c3 --dry-run", _CHANGE),
    "restore": ("restore ORDERS --as ORDERS_OLD --seq 1000..2000", _CHANGE),
    "repair clock": ("repair clock ORDERS --as-of now", _CHANGE),
    "repair sequences": ("repair sequences ORDERS", _CHANGE),
    "repair returned": ("repair returned ORDERS", _CHANGE),
    "repair lost-commit": ("repair lost-commit ORDERS", _CHANGE),
    "repair lost": ("repair lost ORDERS partition=0/segment=41/5f3a.parquet", _CHANGE),
    "repair foreign": ("repair foreign ORDERS", _CHANGE),
    "repair replay": ("repair replay ORDERS --yes", _CHANGE),
    "repair place": ("repair place ORDERS --yes", _CHANGE),
    "compact": ("compact ORDERS --max-time 10m --yes", _CHANGE_ALL),
    "reclaim": ("reclaim ORDERS --yes", _CHANGE_ALL),
    "verify": ("verify ORDERS --sample 1%", (0, 2, 4, 5, 6, 130, 143)),
    "hold add": ("hold add ORDERS --subject 'orders.7.>' --reason 'case 41'", _CHANGE),
    "hold ls": ("hold ls ORDERS", _LOOK),
    "hold release": ("hold release 20261121T103209Z-a1b2c3 --reason 'case closed'", _CHANGE),
    "pause": ("pause ORDERS --reason 'wrong limit, incident 41'", _CHANGE),
    "resume": ("resume ORDERS --reason 'limit corrected'", _CHANGE),
    "explain": ("explain ORDERS 1041 --as-of 2026-11-20", _LOOK),
    "messages": ("messages ORDERS --subject 'orders.*' --last 10", _LOOK),
    "view": ("view ORDERS --json total:double", (0, 2, 4, 6)),
    "state": ("state ORDERS --max-lag 1d", (0, 2, 3, 4, 5, 6)),
    "consumer ls": ("consumer ls ORDERS", _LOOK),
    "consumer info": ("consumer info ORDERS billing", _LOOK),
    "consumer add": ("consumer add ORDERS billing --filter orders.paid", _CHANGE),
    "consumer subscribe": ("consumer subscribe orders.paid --name billing", _CHANGE),
    "consumer update": ("consumer update ORDERS billing --filter 'orders.>'", _CHANGE),
    "consumer rm": ("consumer rm ORDERS billing --yes", _CHANGE),
    "consumer fold": ("consumer fold ORDERS acks.jsonl", _CHANGE),
    "offset store": ("offset store clicks 0 billing 1041", _CHANGE),
    "offset get": ("offset get clicks 0 billing", _LOOK),
    "offset delete": ("offset delete clicks 0 billing", _CHANGE),
    "offset ls": ("offset ls clicks", _LOOK),
    "kv add": ("kv sessions add --history 5 --ttl 1h", (0, 2, 75)),
    "kv put": ("kv sessions put alice on", _CHANGE),
    "kv create": ("kv locks create nightly host7 --ttl 30s", _DECIDE),
    "kv update": ("kv sessions update alice off --revision 41", _DECIDE),
    "kv get": ("kv sessions get alice", _LOOK),
    "kv delete": ("kv sessions delete alice --revision 42", _DECIDE),
    "kv purge": ("kv sessions purge alice --revision 42", _DECIDE),
    "kv ls": ("kv sessions ls 'eu.>'", _LOOK),
    "kv keys": ("kv sessions keys 'eu.*'", _LOOK),
    "kv history": ("kv sessions history alice", _LOOK),
    "kv status": ("kv sessions status", _LOOK),
    "kv watch": ("kv sessions watch 'eu.>' --updates-only", (0, 2, 6, 130, 143)),
    "kv purge-deletes": ("kv sessions purge-deletes --older-than 1d --yes", _CHANGE),
    "stats": ("stats clicks", _LOOK),
    "history": ("history ORDERS", _LOOK),
    "report": ("report --html report.html", (0, 2, 5, 6)),
    "doctor": ("doctor ORDERS", (0, 2, 4, 6)),
    "effective": ("effective ORDERS", _LOOK),
    "package": ("package --venv environment.tar.gz", (0, 2)),
    "airflow": ("airflow --copy-to /opt/airflow/dags", (0, 2)),
}
"""Each command, by its name after `retention`: example arguments, and its possible exit codes."""


def add_examples(app: typer.Typer) -> None:
    """Append the example and exit codes to each command's help.

    Raises:
        KeyError: a command has no example.
    """
    for name, command in _named(app):
        example, codes = EXAMPLES[name]
        meanings = "\n".join(f"  {code:<4} {MEANINGS[code]}" for code in codes)
        command.epilog = f"\b\nExample:\n  retention {example}\n\n\b\nExit codes:\n{meanings}"


def _named(app: typer.Typer, before: str = "") -> Iterator[tuple[str, typer.models.CommandInfo]]:
    for command in app.registered_commands:
        if command.callback is not None:
            name = command.name or command.callback.__name__.replace("_", "-")
            yield f"{before}{name}", command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from _named(group.typer_instance, f"{before}{group.name} ")
