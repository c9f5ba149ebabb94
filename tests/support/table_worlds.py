"""Small tables in place with their policies, and a plain model of a pass: row by row, limit by limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from retention.core.table_policy import (
    LIMITS,
    Column,
    RowPolicy,
    TableColumns,
    TableLimits,
    TablePolicy,
)
from retention.rules.tables.files import narrow_columns
from retention.rules.tables.matching import where_columns
from retention.rules.tables.ticks import TimeColumn, TimeColumns

AS_OF_NS = 100_000
"""100 ticks after the epoch."""
TIMES = TimeColumns(TimeColumn("timestamp"), TimeColumn("timestamp"))
TENANT, REGION = ("tenant",), ("at", "region")
COLUMNS = TableColumns(
    time=("time",),
    key=(("user",), ("shard",)),
    order=(("version",),),
    size=("size",),
    expires_at=("expires_at",),
)
NARROW = pa.schema(
    {
        "file": pa.int64(),
        "row": pa.int64(),
        "time": pa.int64(),
        "expires_at": pa.int64(),
        "size": pa.int64(),
        "key_0": pa.string(),
        "key_1": pa.int32(),
        "order_0": pa.string(),
        "where_0": pa.string(),
        "where_1": pa.string(),
    }
)


@dataclass(frozen=True)
class Row:
    file: int
    row: int
    time: int | None
    expires_at: int | None
    size: int | None
    user: str | None
    shard: int | None
    version: str | None
    tenant: str | None
    region: str | None


@dataclass(frozen=True)
class TableWorld:
    files: tuple[tuple[Row, ...], ...]
    policy: TablePolicy
    unknown: tuple[bool, ...]
    """Whether the bounds of each file are unknown."""
    wider: int
    """Ticks by which bounds are wider than the values."""

    @property
    def rows(self) -> list[Row]:
        return [row for file in self.files for row in file]

    def narrow(self, numbers: Iterable[int]) -> pa.Table:
        """The narrow rows of some files."""
        rows = [row for number in numbers for row in self.files[number]]
        columns = {name: [getattr(row, field) for row in rows] for name, field in self._fields()}
        return pa.table(
            {name: pa.array(values, NARROW.field(name).type) for name, values in columns.items()}
        )

    def _fields(self) -> Iterator[tuple[str, str]]:
        """The name of each narrow column, and of its field in a `Row`."""
        yield from (("file", "file"), ("row", "row"))
        for name, column in narrow_columns(self.policy).items():
            yield name, column[-1]

    def bounds(self) -> pa.Table:
        return pa.Table.from_pylist(
            [
                self._bounds(file, unknown)
                for file, unknown in zip(self.files, self.unknown, strict=True)
            ],
            pa.schema(
                [
                    *((name, pa.int64()) for name in ("rows", "bytes")),
                    *(
                        (f"{column}_{bound}", pa.int64())
                        for column in ("time", "expires_at")
                        for bound in ("min", "max", "nulls")
                    ),
                    *((f"where_{n}", pa.string()) for n in range(2)),
                    *((f"where_{n}_is_constant", pa.bool_()) for n in range(2)),
                ]
            ),
        )

    def _bounds(self, file: tuple[Row, ...], unknown: bool) -> dict[str, Any]:
        bounds: dict[str, Any] = {"rows": len(file), "bytes": file_bytes(file)}
        for column in () if unknown else ("time", "expires_at"):
            values = [value for row in file if (value := getattr(row, column)) is not None]
            bounds[f"{column}_nulls"] = len(file) - len(values)
            if values:
                bounds[f"{column}_min"] = min(values)
                bounds[f"{column}_max"] = max(values) + self.wider
        for number, where in enumerate(where_columns(self.policy)):
            constants = {getattr(row, where[-1]) for row in file}
            is_constant = len(constants) == 1 and not unknown
            bounds[f"where_{number}_is_constant"] = is_constant
            bounds[f"where_{number}"] = constants.pop() if is_constant else None
        return bounds


def as_table(rows: Iterable[Row], tick_us: int = 1) -> pa.Table:
    """Rows as their owner would write them; a tick has this many microseconds."""
    rows = list(rows)

    def times(values: Iterable[int | None]) -> pa.Array:
        scaled = [None if value is None else value * tick_us for value in values]
        return pa.array(scaled, pa.int64()).cast(pa.timestamp("us", "UTC"))

    return pa.table(
        {
            "file": pa.array([r.file for r in rows], pa.int64()),
            "row": pa.array([r.row for r in rows], pa.int64()),
            "time": times(r.time for r in rows),
            "expires_at": times(r.expires_at for r in rows),
            "size": pa.array([r.size for r in rows], pa.int64()),
            **{
                name: pa.array([getattr(r, name) for r in rows], pa.string())
                for name in ("user", "version", "tenant")
            },
            "shard": pa.array([r.shard for r in rows], pa.int32()),
            "at": pa.array(
                [{"region": r.region} for r in rows], pa.struct({"region": pa.string()})
            ),
        }
    )


def with_total_order(world: TableWorld, random: Any) -> TableWorld:
    """The world with another version in each row, and with a column of sizes, so that statements can name its rows."""
    policy = replace(world.policy, columns=replace(COLUMNS, size=("size",)))
    order = iter(random.sample(range(len(world.rows)), len(world.rows)))
    files = tuple(
        tuple(replace(row, version=f"{next(order):03}") for row in file) for file in world.files
    )
    return replace(world, files=files, policy=policy)


def file_bytes(file: tuple[Row, ...]) -> int:
    return 10 * len(file) + len(file) % 3


def removed(world: TableWorld) -> dict[tuple[int, int], str]:
    """The rule that removes each row, as the pages say it, one limit after the other."""
    gone: dict[tuple[int, int], str] = {}
    for limit in LIMITS:
        left = [row for row in world.rows if (row.file, row.row) not in gone]
        for row in _beyond(world, limit, left):
            gone[row.file, row.row] = limit
    return gone


def _beyond(world: TableWorld, limit: str, left: list[Row]) -> Iterator[Row]:
    policy = world.policy
    if limit in ("expires_at", "max_age"):
        is_due = _expired if limit == "expires_at" else _old
        yield from (row for row in left if is_due(policy, row))
        return
    for group, most in _groups(policy, limit):
        rows = [row for row in left if _group(policy, limit, row) == group]
        newest = sorted(_timed(rows), key=_age(policy), reverse=True)
        if limit == "max_rows_per_key":
            yield from _beyond_keys(policy, _timed(rows), most)
        elif limit == "max_rows":
            yield from newest[most:]
        elif policy.columns.size is None:
            yield from _oldest_files(world, group, left, most)
        else:
            totals = accumulate(max(row.size or 0, 0) for row in newest)
            yield from (row for row, total in zip(newest, totals, strict=True) if total > most)


def _beyond_keys(policy: TablePolicy, rows: list[Row], most: int) -> Iterator[Row]:
    for key in {(row.user, row.shard) for row in rows}:
        if None not in key:
            of_key = [row for row in rows if (row.user, row.shard) == key]
            yield from sorted(of_key, key=_age_in_key(policy), reverse=True)[most:]


def _oldest_files(world: TableWorld, group: int, left: list[Row], most: int) -> list[Row]:
    members = [
        number
        for number, file in enumerate(world.files)
        if any(row in left for row in file) and _groups_of_file(world, number) == {group}
    ]
    total = sum(file_bytes(world.files[number]) for number in members)
    going: list[Row] = []
    timed = [
        number
        for number in members
        if not world.unknown[number] and all(row.time is not None for row in world.files[number])
    ]
    for number in sorted(timed, key=lambda n: max(row.time or 0 for row in world.files[n])):
        size = file_bytes(world.files[number])
        if total <= most or total - size < most:
            break
        total -= size
        going += [row for row in world.files[number] if row in left]
    return going


def _groups_of_file(world: TableWorld, number: int) -> set[int]:
    """The groups in which rows of a file may count towards `max_bytes`, by the columns that are constant in it."""
    policies, file = world.policy.policies, world.files[number]
    found: set[int] = set()
    for place, each in enumerate(policies):
        matches = set[bool | None]()
        for column, wanted in each.where:
            values = {getattr(row, column[-1]) for row in file}
            is_constant = len(values) == 1 and not world.unknown[number]
            matches.add(values.pop() in wanted if is_constant else None)
        if False not in matches:
            found.add(place if "max_bytes" in each.named else len(policies))
        if matches == {True}:
            return found
    return found | {len(policies)}


def _timed(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.time is not None]


def _age(policy: TablePolicy) -> Callable[[Row], Any]:
    return lambda row: (row.time, *_order(policy, row), row.file, row.row)


def _age_in_key(policy: TablePolicy) -> Callable[[Row], Any]:
    return lambda row: (*_order(policy, row), row.time, row.file, row.row)


def _order(policy: TablePolicy, row: Row) -> list[Any]:
    return [(row.version is not None, row.version or "")] if policy.columns.order else []


def _policy(policy: TablePolicy, row: Row) -> int:
    for number, each in enumerate(policy.policies):
        if all(getattr(row, column[-1]) in values for column, values in each.where):
            return number
    return len(policy.policies)


def _limits(policy: TablePolicy, row: Row) -> TableLimits:
    number = _policy(policy, row)
    return policy.policies[number].limits if number < len(policy.policies) else policy.limits


def _expired(policy: TablePolicy, row: Row) -> bool:
    due = row.expires_at is not None and row.expires_at * 1000 <= AS_OF_NS
    return due and _limits(policy, row).expires


def _old(policy: TablePolicy, row: Row) -> bool:
    age = _limits(policy, row).max_age_ns
    return age is not None and row.time is not None and AS_OF_NS - row.time * 1000 >= age


def _group(policy: TablePolicy, limit: str, row: Row) -> int:
    number = _policy(policy, row)
    is_own = number < len(policy.policies) and limit in policy.policies[number].named
    return number if is_own else len(policy.policies)


def _groups(policy: TablePolicy, limit: str) -> list[tuple[int, int]]:
    own = [(number, each) for number, each in enumerate(policy.policies) if limit in each.named]
    limits = [(number, getattr(each.limits, limit)) for number, each in own]
    limits.append((len(policy.policies), getattr(policy.limits, limit)))
    return [(number, most) for number, most in limits if most is not None]


_TICKS = st.one_of(st.none(), st.integers(60, 110))
_LIMITS = st.builds(
    TableLimits,
    max_age_ns=st.one_of(st.none(), st.integers(0, 45_000)),
    max_rows_per_key=st.one_of(st.none(), st.integers(1, 3)),
    max_rows=st.one_of(st.none(), st.integers(0, 10)),
    max_bytes=st.one_of(st.none(), st.integers(0, 120)),
    expires=st.booleans(),
)
_FIELD = {
    "expires_at": "expires",
    "max_age": "max_age_ns",
    **{name: name for name in LIMITS if name.startswith("max_") and name != "max_age"},
}


@st.composite
def _policies(draw: st.DrawFn, table: TableLimits) -> RowPolicy:
    columns: tuple[Column, ...] = draw(st.sampled_from([(TENANT,), (REGION,), (TENANT, REGION)]))
    values = st.lists(st.sampled_from([None, "a", "b"]), min_size=1, max_size=2, unique=True)
    own, named = draw(_LIMITS), draw(st.sets(st.sampled_from(LIMITS), min_size=1))
    limits = replace(table, **{_FIELD[name]: getattr(own, _FIELD[name]) for name in named})
    return RowPolicy(
        tuple((column, tuple(draw(values))) for column in columns), limits, frozenset(named)
    )


@st.composite
def table_worlds(draw: st.DrawFn) -> TableWorld:
    """Tables of some small files, mostly in order of time."""
    limits = draw(_LIMITS)
    policies = draw(st.lists(_policies(limits), max_size=2))
    columns = replace(
        COLUMNS,
        size=draw(st.sampled_from([COLUMNS.size, None])),
        order=draw(st.sampled_from([COLUMNS.order, ()])),
    )
    files = []
    for file in range(draw(st.integers(0, 5))):
        start, is_plain = 60 + 8 * file, draw(st.booleans())
        time = st.integers(start, start + 8) if is_plain else _TICKS
        tenant = draw(st.sampled_from([None, "a", "b", "c"]))
        rows = [
            Row(
                file=file,
                row=row,
                time=draw(time),
                expires_at=draw(_TICKS),
                size=draw(st.one_of(st.none(), st.integers(-5, 30))),
                user=draw(st.sampled_from(["u", "v", "u", None])),
                shard=draw(st.sampled_from([1, 1, 2, None])),
                version=draw(st.sampled_from([None, "x", "y"])),
                tenant=tenant if is_plain else draw(st.sampled_from([None, "a", "b"])),
                region=draw(st.sampled_from([None, "a", "b"])),
            )
            for row in range(draw(st.integers(0, 4)))
        ]
        files.append(tuple(rows))
    unknown = tuple(draw(st.sampled_from([False, False, False, True])) for _ in files)
    return TableWorld(
        tuple(files),
        TablePolicy(columns, limits, tuple(policies)),
        unknown,
        draw(st.integers(0, 2)),
    )


def lost(table: pa.Table) -> dict[tuple[int, int], str]:
    """Rows of shape `DEAD_ROWS`, as `removed` has them."""
    return {(row["file"], row["row"]): LIMITS[row["rule"]] for row in table.to_pylist()}
