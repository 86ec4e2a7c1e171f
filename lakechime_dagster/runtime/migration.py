"""Moves a table that other programs write to another format, while they write and others read it.

Both sides are kept equal by copying the partitions that changed on one of them to the other. See
`dce.migration` for what is kept of it, and for the switch.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lakechime_dagster.dce.engine import reading
from lakechime_dagster.dce.events import DataChangeEvent, OvertakenError, TableFormat
from lakechime_dagster.dce.migration import (
    COPY_TAG,
    Changed,
    Keys,
    Migration,
    begun,
    changed_since,
    finished,
    noted,
    switched,
    tags_beside,
)
from lakechime_dagster.dce.partitions import UNPARTITIONED
from lakechime_dagster.dce.queries import TableRow
from lakechime_dagster.dce.snapshots import VERDICT_TAG
from lakechime_dagster.errors import InvalidValueError, LakeChimeError, TableAbsentError, needs
from lakechime_dagster.formats.changes import BASELINE_TAG
from lakechime_dagster.formats.files import has_folder
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.runtime.reconcile import reconcile_table
from lakechime_dagster.spark.job import TableJob
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.sources import MessageTable, TableRows
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, ConsumerId
from lakechime_dagster.triggers.progress import consumer_lags, consumers_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakechime_dagster.formats.changes import ChangeLog
    from lakechime_dagster.runtime.platform import FormatLog

Session = Callable[[], "SparkSession"]
MAX_ROUNDS = 10  # of copying before a switch: each takes what changed during the one before
SHOWN = 5  # partitions that a sentence names


class WrittenOnBothError(LakeChimeError):
    """Partitions were written on both sides since they were equal."""


@dataclass(frozen=True)
class Move:
    """A table on its way from one format to another."""

    platform: Platform
    lake: Lake
    table: SourceTable
    log: Callable[[str], None] = print

    @property
    def known(self) -> TableRow | None:
        """What the store knows of the table now."""
        key = (self.platform.settings.cluster, self.table.name)
        return self.platform.store.captured(self.table.name).get(key)

    @property
    def migration(self) -> Migration | None:
        """The open migration."""
        known = self.known
        return None if known is None else Migration.of(known)

    def begin(self, to: TableFormat) -> Migration:
        """The open migration to a format; it is begun where none is open.

        Raises:
            LakeChimeError: the table has that format, one of that name in it is there already, or
                a migration to another format is open.
            TableAbsentError: there is no table to migrate.
        """
        open_one, known = self.migration, self.known
        current = (known and known.format) or TableFormat(self.table.format)
        name = self.table.name
        if to is TableFormat.HIVE and (open_one is None or to is not open_one.from_format):
            raise LakeChimeError(
                f"{name}: a table is migrated to iceberg or delta, and back to hive while that "
                f"migration is open; give one of these"
            )
        if open_one is None:
            if current is to:
                raise LakeChimeError(f"{name} is a table of {to.lower()} already")
            if problem := self._taken(to) or self._unmovable():
                raise LakeChimeError(f"{name}: {problem}")
            for log in self._logs(known):
                reconcile_table(self.platform, log, self.table.levels)
        engine = self.platform.store.engine
        return begun(engine, (self.platform.settings.cluster, name), current, to)

    def run(self, to: TableFormat | None, take: TableFormat | None = None) -> Migration:
        """Copy once, or switch to a side, on Spark as the settings have it; where there is nothing to
        copy none is started.

        Raises:
            SparkFailedError: Spark's own message.
        """
        with needs("copying a table", extra="spark"):
            from lakechime_dagster.spark.driver import described, open_driver

        settings = self.platform.settings
        with ExitStack() as opened:

            @cache
            def session() -> "SparkSession":
                driver = open_driver(
                    settings.spark, settings.home, jars=settings.jars, log=self.log
                )
                opened.enter_context(described())
                return opened.enter_context(driver).spark

            if to is None:
                return self.copy(session, take).migration
            return self.switch(session, to, take)

    def copy(self, session: "Session", take: TableFormat | None = None) -> "Copied":
        """Copy what changed on either side to the other, once.

        It may be killed at any moment, and is then begun again by the next call.

        Args:
            session: Opens a session of Spark, which is asked for where there is something to copy.
            take: From which side partitions are taken that were written on both.

        Raises:
            WrittenOnBothError: there are such partitions, and it is not said.
        """
        migration, store = self._open(), self.platform.store
        mine, other = migration.current, migration.other
        if take not in (None, mine, other):
            raise InvalidValueError(
                "--take", str(take).lower(), f"is no side; take {mine.lower()} or {other.lower()}"
            )
        is_first = not migration.copied
        before = self._captured(migration)
        keys, written = _to_copy(migration, before, take)
        if not any(keys.values()) and not migration.copying:
            return Copied(migration=migration)
        migration = noted(store.engine, migration, number=migration.number + 1, copying=keys)
        for of, to in ((mine, other), (other, mine)):
            if keys[of]:
                self.log(f"{self.table.name}: {shown(keys[of])} from {of.lower()} to {to.lower()}")
                self._write(session(), migration, of, to, keys[of])
        after = self._captured(
            replace(migration, copied={of: one.through for of, one in before.items()}, left={})
        )
        self._mark(migration, keys[other] | written)
        migration = noted(
            store.engine,
            migration,
            copied={of: one.through for of, one in after.items()},
            # what is later than the copy; the files that the first one took name no copy
            left={of: frozenset() if is_first and of is other else after[of].keys for of in after},
            copying={},
            uids={of: migration.uids.get(of) or before[of].uid or after[of].uid for of in after}
            if is_first
            else {of: before[of].uid for of in after},
        )
        return Copied(migration=migration, keys=keys)

    def _mark(self, migration: Migration, keys: Keys) -> None:
        """Give partitions that were copied to the side of the name the tags of their events beside
        it: whatever waits for tags waits for them.
        """
        found = tags_beside(self.platform.store.engine, migration, keys)
        own = {BASELINE_TAG, VERDICT_TAG, COPY_TAG}
        markers = [
            DataChangeEvent(
                table=self.table.name,
                cluster=migration.cluster,
                partition=one.event.partition,
                tags=tags,
                event_key=f"{COPY_TAG}/{migration.began_ts}/{one.position}",
            )
            for one in found.values()
            if (tags := {name: text for name, text in one.event.tags.items() if name not in own})
        ]
        self.platform.store.register(markers)

    def switch(
        self, session: "Session", to: TableFormat, take: TableFormat | None = None
    ) -> Migration:
        """Let the name of the table stand for a side, after both are equal.

        Raises:
            WrittenOnBothError: as `copy`.
            LakeChimeError: writers go on so fast that the sides do not become equal.
        """
        if self._open().current is to:
            return self._open()
        for _ in range(MAX_ROUNDS):
            copied = self.copy(session, take)
            if any(copied.keys.values()):
                continue
            try:
                return switched(self.platform.store.engine, copied.migration)
            except OvertakenError:
                continue
        raise LakeChimeError(
            f"{self.table.name}: something changed in each of {MAX_ROUNDS} copies; let its writers "
            f"rest for a moment, and switch again"
        )

    def finish(self, *, gives_up: bool = False) -> None:
        """End the migration, after which the side that the name does not stand for is no longer
        looked at.

        Args:
            gives_up: Whether that may be the new one.

        Raises:
            LakeChimeError: not all is on the side of the name, or somebody still reads the other.
        """
        migration = self._open()
        if hindrance := self._hindrance(migration, gives_up=gives_up):
            raise LakeChimeError(f"{self.table.name}: {hindrance}")
        if migration.current is TableFormat.ICEBERG:
            # its files may be some of the old table, which nobody needs any more
            self.platform.iceberg_log(self.table.name).require({"gc.enabled": "true"})
        finished(self.platform.store.engine, migration)

    def _hindrance(self, migration: Migration, *, gives_up: bool) -> str:
        """Why a migration cannot end now; empty where it can."""
        other = migration.other.lower()
        if migration.current is not migration.to_format and not gives_up:
            stands = migration.current.lower()
            return f"its name stands for the {stands} table; --switch first, or give up by --back"
        changed = self._captured(migration, must_be_there=False)[migration.other].keys
        if changed and migration.copied:
            return f"{shown(changed)} of the {other} table changed since the switch; copy again"
        uid = self.known and self.known.table_uid
        for one in consumers_at(self.platform.store.engine, self.table.name, migration.cluster):
            if one.pinned is not None and one.pinned.table_uid not in (None, uid):
                reader = one.consumer.subscription
                return f"an execution of {reader} that reads the {other} table is open; let it end"
        return ""

    def plan(self, to: TableFormat) -> dict[str, Any]:
        """Where a migration stands, what it copies next, what hinders a switch, and from where the
        consumers of the table go on.
        """
        migration, name = self.migration, self.table.name
        hindrances: list[str] = []
        keys: Mapping[TableFormat, Keys] = {}
        if migration is None:
            current = (self.known and self.known.format) or TableFormat(self.table.format)
            state = "done" if current is to else "not begun"
            if current is not to and (taken := self._taken(to)):
                hindrances.append(taken)
        else:
            current = migration.current
            is_new = current is migration.to_format
            state = "switched" if is_new else "copied" if migration.copied else "begun"
            try:
                changed = changed_since(self.platform.store.engine, migration)
                keys, _ = _to_copy(migration, changed)
            except WrittenOnBothError as error:
                hindrances.append(str(error))
        engine, cluster = self.platform.store.engine, self.platform.settings.cluster
        with reading(engine) as connection:
            lags = consumer_lags(connection, self.platform.settings.deployment)
        waiting = {one.consumer: one.amounts for one in lags if one.source == name}
        return {
            "table": name,
            "to": to.lower(),
            "state": state,
            "stands_for": current.lower(),
            "to_copy": {of.lower(): shown(found) for of, found in keys.items() if found},
            "hindrances": hindrances,
            "consumers": [
                {
                    "consumer": one.consumer.subscription,
                    "key": one.consumer.key,
                    "read_through": one.read and one.read.snapshot_id,
                    "reads_now": one.pinned and one.pinned.snapshot_id,
                    "waiting_events": waiting.get(one.consumer.subscription, {}).get("events"),
                }
                for one in consumers_at(engine, name, cluster)
            ],
        }

    def _open(self) -> Migration:
        migration = self.migration
        if migration is None:
            raise LakeChimeError(
                f"{self.table.name} is not being migrated; begin by `lakechime table migrate "
                f"{self.table.name} --to iceberg`"
            )
        return migration

    def _logs(self, known: TableRow | None) -> "list[ChangeLog]":
        table = self.table
        return self.platform.change_logs(
            table.name,
            TableFormat(table.format),
            table.location,
            table.levels,
            known=known,
            lists_all=True,
        )

    def _captured(
        self, migration: Migration, *, must_be_there: bool = True
    ) -> dict[TableFormat, Changed]:
        """What changed on both sides since it was copied, after their logs were captured."""
        for log in self._logs(self.known):
            try:
                reconcile_table(self.platform, log, self.table.levels)
            except TableAbsentError:
                if log.table == self.table.name or (migration.copied and must_be_there):
                    raise
        return changed_since(self.platform.store.engine, migration)

    def _taken(self, to: TableFormat) -> str:
        """Why no table of a format can be made; empty where it can."""
        name = self.table.name
        location = self.platform.location(name, self.table.location)
        if to is TableFormat.ICEBERG and self.platform.iceberg_log(name).exists():
            return "the Iceberg catalog has a table of that name already; drop or rename it first"
        if to is TableFormat.DELTA and has_folder(location):
            return (
                f"a Delta table would lie at {location}, where something is already; move that away "
                f"first"
            )
        return ""

    def _unmovable(self) -> str:
        """Why the table cannot be migrated; empty where it can."""
        for one in self.lake.tables:
            rows = one.source if isinstance(one, MessageTable) else None
            if isinstance(rows, TableRows) and rows.name == self.table.name:
                return f"{one.name} reads it as a stream, which is of Delta tables alone"
        return ""

    def _write(
        self,
        spark: "SparkSession",
        migration: Migration,
        of: TableFormat,
        to: TableFormat,
        keys: Keys,
    ) -> None:
        """Replace partitions of one side by those of the other, in one commit."""
        from lakechime_dagster.spark.commit import commit
        from lakechime_dagster.spark.iceberg import IcebergTarget
        from lakechime_dagster.spark.inputs import source_of
        from lakechime_dagster.spark.ranges import narrowed, partitions_of
        from lakechime_dagster.spark.refresh import target_of
        from lakechime_dagster.spark.session import column, plain

        platform, table = self.platform, self.table
        rows, _ = source_of(spark, self._log(of)).read_snapshot(None)
        there = {name.lower(): name for name in rows.columns}
        names = platform.levels_of(table.name, table.levels).names
        levels = tuple(there.get(name.lower(), name) for name in names)
        job = TableJob(
            name=table.name,
            location=platform.location(table.name, table.location),
            inputs=(),
            partitioned_by=levels,
            log=self._log(to),
        )
        target = target_of(job, platform.log_at)
        write = partial(target.replace_all, rows)
        if levels and not _is_whole(keys):
            found = partitions_of(spark, rows.schema, levels, keys)
            typed = [plain(found[one.name], one.dataType).alias(one.name) for one in found.schema]
            values = [tuple(row) for row in found.select(*typed).collect()]
            within = narrowed(rows, found, {name: column(name) for name in found.columns})
            write = partial(target.replace_partitions, within, values)
        if isinstance(target, IcebergTarget):
            # not the folder of a Delta table of that name, to which it may be migrated next
            target.location = f"{platform.location(table.name)}@iceberg"
        target.prepare(spark, rows.schema)
        if isinstance(target, IcebergTarget) and of is TableFormat.HIVE and not migration.copied:
            target.begin()
            folder = platform.hive_log(table.name, table.levels).folder_of_all()
            if folder is not None and target.is_just_made():
                self.log(f"{table.name}: the files of {folder[1]} become its own, uncopied")
                target.take_files(spark, *folder)
                return
        writer = f"migrate/{table.name}/{migration.began_ts}"
        metadata = CommitMetadata(
            consumer=ConsumerId(platform.settings.deployment, writer),
            number=migration.number,
            attempt=1,
            end=Checkpoint(),
            execution_id=uuid4().hex,
            tags={COPY_TAG: migration.copy},
        )
        commit(spark, target, metadata, lambda: write)

    def _log(self, side: TableFormat) -> "FormatLog":
        table = self.table
        return self.platform.log_of(table.name, side, table.location, table.levels)


@dataclass(frozen=True, kw_only=True)
class Copied:
    """A migration after a copy, and the partitions that were copied, by the side they are of."""

    migration: Migration
    keys: Mapping[TableFormat, Keys] = field(default_factory=dict)


def _is_whole(keys: Keys) -> bool:
    """Whether all partitions may have changed: an event that names none is of the whole table."""
    return UNPARTITIONED in keys


def _to_copy(
    migration: Migration, changed: Mapping[TableFormat, Changed], take: TableFormat | None = None
) -> tuple[dict[TableFormat, Keys], Keys]:
    """The partitions to copy, by the side they are of, and those that a copy which did not end has
    written to the side of the name: to write them again would trigger twice.
    """
    mine, other = migration.current, migration.other
    nothing: Keys = frozenset()
    if not migration.copied:
        return {mine: frozenset([UNPARTITIONED]), other: nothing}, nothing
    again, back = (migration.copying.get(of, nothing) for of in (mine, other))
    written = back if _is_whole(back) and changed[mine].copied else back & changed[mine].copied
    of_mine = changed[mine].keys | again
    of_other = (changed[other].keys | back) - written
    if both := _both(of_mine, of_other):
        if take is None:
            raise WrittenOnBothError(
                f"{migration.table}: {shown(both)} changed on both sides since they were equal; say "
                f"from which side to take it, --take {mine.lower()} or --take {other.lower()}"
            )
        of_mine, of_other = (
            (of_mine, of_other - both) if take is mine else (of_mine - both, of_other)
        )
    return {mine: of_mine, other: of_other}, written


def _both(one: Keys, other: Keys) -> Keys:
    """The partitions that are in both."""
    if one and other and (_is_whole(one) or _is_whole(other)):
        return one | other
    return one & other


def shown(keys: Keys) -> str:
    """Partitions in a sentence."""
    if _is_whole(keys):
        return "the whole table"
    names = [", ".join(str(value) for value in json.loads(key)) for key in sorted(keys)]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{'partition' if len(names) == 1 else 'partitions'} {'; '.join(names[:SHOWN])}{more}"
