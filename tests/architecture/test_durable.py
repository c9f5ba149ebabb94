"""Every durable change reaches a named step, so that tests can kill a process there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "retention"
EFFECTS = {
    "files.create",
    "files.replace",
    "files.replace_all",
    "files.delete",
    "files.move",
    "files.create_if_absent",
    "table.create_write_transaction",
    "DeltaTable.create",
    "create_checkpoint",
    "alter.set_table_properties",
    "symlink_to",
    "session.sql",
}
WITHIN = {"files.move", "files.create_if_absent"}
"""They reach steps themselves, for each file."""
WITHOUT = {
    "stores/lease.py": "a lease on an object store runs out by itself",
    "stores/checks/capability_probe.py": "what the doctor tries lies in a directory of its own",
    "engines/spark/workers.py": "the same, by a task",
    "storage/outputs.py": "an output is a file of the person who asked for it",
    "plan/saved_tables.py": "so are the tables of a saved plan",
    "formats/nats/backup.py": "a backup is a file of the person who asked for it",
    "cli/airflow.py": "a copy of this package's files, made again whole",
    "config/list_entry.py": "the configuration is a file of people, replaced whole or not at all",
    "inspect/nats_export.py": "so is what lies beside it",
    "storage/scratch_files.py": "tables on their way between tasks; nothing rests on them once a process is gone",
    "apply/deletion_vectors.py": "Spark's own commit",
    "engines/spark/catalog.py": "a question to a catalog",
}


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def calls(function: ast.FunctionDef) -> set[str]:
    """The calls of a function as written: in full, and their last one and two names."""
    written = {ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
    return {".".join(call.split(".")[-parts:]) for call in written for parts in (1, 2)}


def silent(module: Path) -> list[str]:
    """Functions with a durable effect, without a step in them or in a caller of the module."""
    by_name = {
        function.name: calls(function) for function in functions(ast.parse(module.read_text()))
    }
    speaking = {name for name, called in by_name.items() if "reached" in called}
    return [
        f"{module.relative_to(ROOT)}: {name}"
        for name, called in by_name.items()
        if called & (EFFECTS - WITHIN) and name not in speaking
        if not any(name in by_name[other] for other in speaking)
    ]


def test_every_durable_effect_is_a_step() -> None:
    found = {
        str(path.relative_to(ROOT)): silent(path)
        for path in sorted(ROOT.rglob("*.py"))
        if path.name not in ("storage/files.py", "storage/local.py")
    }
    assert [line for where, lines in found.items() if where not in WITHOUT for line in lines] == []
    assert [where for where in WITHOUT if not found.get(where, where)] == []
