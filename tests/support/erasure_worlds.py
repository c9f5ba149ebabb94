"""Random worlds of streams in which a person's messages got everywhere, before they are erased."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from retention.errors import RetentionError
from retention.plan.planfile import save_plans
from retention.schemas.messages import MESSAGES
from retention.storage.crash_points import Step, watched_by
from tests.erasure.test_erase import EVE, World

Act = Callable[[World, Random], None]


class Killed(BaseException):
    """The end of a process at a step."""


def killed_at(step: int, act: Callable[[], object]) -> None:
    """Carry out an act up to its n-th step; what it left then stays."""
    reached = 0

    def watch(_: Step) -> None:
        nonlocal reached
        reached += 1
        if reached == step:
            raise Killed

    with watched_by(watch), suppress(Killed, RetentionError):
        act()


def publish(world: World, rng: Random) -> None:
    world.publish(rng.choice([1, 3]))


def purge(world: World, rng: Random) -> None:
    """A purge by subject, whose filter names the person; sometimes undone."""
    report = world.stream.purge(EVE, keep=rng.choice([1, 3])).apply()
    if report.removed_messages and rng.random() < 0.5:
        world.warehouse.undo(report.run)


def delete(world: World, rng: Random) -> None:
    seqs = [row["seq"] for table in world.stream.messages() for row in table.to_pylist()]
    world.stream.delete(*rng.sample(seqs, min(2, len(seqs)))).apply()


def compact(world: World, rng: Random) -> None:
    del rng
    world.stream.compact().apply()


def hold(world: World, rng: Random) -> None:
    """A legal hold that names the person, and ends."""
    placed = world.warehouse.hold("ORDERS", subject=EVE, reason=f"case of {EVE}", owner=EVE)
    if rng.random() < 0.5:
        world.stream.purge("orders.>", keep=20).apply()
    world.warehouse.release_hold(placed.id, reason=f"{EVE} asked")


def consumer(world: World, rng: Random) -> None:
    """A consumer whose filter names the person, and that is deleted."""
    name = f"reader-{rng.randrange(100)}"
    world.stream.consumers.add({"durable_name": name, "filter_subject": EVE})
    world.stream.consumers.remove(name)


def plan(world: World, rng: Random) -> None:
    """A plan in the cache, and one in a file of the warehouse."""
    del rng
    save_plans(str(world.folder / "plan.json"), [world.stream.plan().plan])


def kill_pass(world: World, rng: Random) -> None:
    killed_at(rng.randint(2, 14), lambda: world.stream.purge(EVE, keep=1).apply())


def kill_compaction(world: World, rng: Random) -> None:
    killed_at(rng.randint(2, 14), lambda: world.stream.compact().apply())


def kill_verify(world: World, rng: Random) -> None:
    killed_at(rng.randint(1, 3), world.stream.verify)


def _table(world: World) -> DeltaTable:
    return DeltaTable(str(world.folder / "streams" / "ORDERS" / "messages"))


def foreign_append(world: World, rng: Random) -> None:
    """Another writer appends a message of the person, with statistics of its subject and id in the log."""
    del rng
    rows = pa.concat_tables(world.stream.messages())
    last = rows.slice(rows.num_rows - 1)
    seq = world.stream.state().last_seq + 1
    values: dict[str, Any] = {"seq": seq, "subject": EVE}
    for name, value in values.items():
        at = last.schema.get_field_index(name)
        field = last.schema.field(at)
        last = last.set_column(at, field, pa.array([value], field.type))
    columns = {"delta.dataSkippingStatsColumns": "seq,subject,msg_id"}
    _table(world).alter.set_table_properties(columns)
    write_deltalake(_table(world), last.select(MESSAGES.names).cast(MESSAGES), mode="append")


def change_data(world: World, rng: Random) -> None:
    """Another writer deletes under a change data feed."""
    del rng
    table = _table(world)
    table.alter.set_table_properties(
        {"delta.enableChangeDataFeed": "true"}, raise_if_not_exists=False
    )
    rows = [row for rows in world.stream.messages() for row in rows.to_pylist()]
    seqs = [row["seq"] for row in rows if row["subject"] == EVE]
    _table(world).delete(f"seq = {seqs[-1]}")


def foreign_compaction(world: World, rng: Random) -> None:
    del rng
    _table(world).optimize.compact()


def foreign_checkpoint(world: World, rng: Random) -> None:
    del rng
    _table(world).create_checkpoint()


ACTS: Mapping[str, Act] = {
    act.__name__: act
    for act in (
        publish,
        purge,
        delete,
        compact,
        hold,
        consumer,
        plan,
        kill_pass,
        kill_compaction,
        kill_verify,
    )
}
FOREIGN: Mapping[str, Act] = {
    act.__name__: act
    for act in (foreign_append, change_data, foreign_compaction, foreign_checkpoint)
}
"""What Spark or deltalake do; on Delta only."""


def random_world(folder: Path, seed: int) -> tuple[World, list[str]]:
    """A world of a seed, and the acts in it, as far as they are not refused."""
    rng = Random(seed)
    store = ("delta", "parquet", "vectors")[seed % 3]
    layout, span = rng.choice(["sequence", "deadline"]), rng.choice(["5s", "1h"])
    settings = {"layout": layout, "segment_span": span}
    world = World(folder, store, **settings)
    world.publish(4)
    known = ACTS if store == "parquet" else {**ACTS, **FOREIGN}
    done = [store, str(settings)]
    for name in rng.choices(list(known), k=rng.randint(4, 9)):
        try:
            known[name](world, rng)
        except (RetentionError, IndexError) as error:
            done.append(f"{name}: {error}")
        else:
            done.append(name)
    return world, done
