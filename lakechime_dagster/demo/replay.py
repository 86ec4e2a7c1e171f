"""Replays 2013 into the bronze tables, hour by hour."""

import datetime as dt
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from lakechime_dagster.dce.events import DataChangeEvent, Seen, Tags
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.demo.airport import file_of
from lakechime_dagster.demo.data import FIRST_DAY, FLEET_TYPES, HOURS
from lakechime_dagster.demo.flights import HOUR, fleet
from lakechime_dagster.demo.plan import Complete, How, Partition, Plan, Write
from lakechime_dagster.errors import InvalidValueError, LakeChimeError
from lakechime_dagster.formats.changes import TAGS_KEY
from lakechime_dagster.formats.delta import DeltaLog
from lakechime_dagster.lock import locked

if TYPE_CHECKING:
    from lakechime_dagster.demo.reservations import ReservationsDatabase
    from lakechime_dagster.formats.hive import HiveLog

APP_ID = "lakechime-demo-replay"  # by which each table knows how far the replay got
COMPLETE_TAGS = Tags({"complete": "true"})
MOST_ACTIONS = 100  # more than one tick ever has


@dataclass(frozen=True, kw_only=True)
class ReplayState:
    """How far a replay got: the ticks done of the plan of this seed and number of days."""

    seed: int
    days: int
    ticks: int = 0

    @property
    def plan(self) -> Plan:
        return Plan(seed=self.seed, days=self.days)

    @classmethod
    def load(cls, path: Path) -> "ReplayState | None":
        """The state that a replay left, or None where none began."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            raise InvalidValueError(
                "replay state", str(path), "cannot be read; remove it to replay from the beginning"
            ) from None

    def save(self, path: Path) -> None:
        """Write the state so that a reader sees the old one or the new one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(asdict(self)), encoding="utf-8")
        beside.replace(path)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What one tick of a replay did; `hour` names it as an hour of 2013, `notes` say what was
    unusual.
    """

    ticks: int
    of: int
    hour: str
    rows: int
    commits: int
    notes: tuple[str, ...]

    @property
    def is_done(self) -> bool:
        return self.ticks >= self.of


class Replayer:
    """Writes the bronze tables of a warehouse as a plan says, from where the last replay stopped.

    A tick that was interrupted is done again: what it had committed or registered is recognised and
    left alone.

    Args:
        warehouse: the folder in which `bronze/flights` and `bronze/weather` lie.
        store: where the events of the commits are registered.
        state: the file that keeps how far the replay got.
        seed: another seed has its mishaps in other hours.
        days: how many days to replay.
        cluster: the data platform named in the events.
        reservations: a database that gets what is booked in each hour; what it lacks of earlier
            hours it gets first.
        airport: a folder that gets a file of the airports' events of each hour, likewise.
        fleet: the Hive table that gets the exports of the fleet, likewise.

    Raises:
        InvalidValueError: when a replay of another seed or number of days began here.
    """

    def __init__(
        self,
        warehouse: str | Path,
        store: DCEStore,
        state: Path,
        *,
        seed: int = Plan.seed,
        days: int = Plan.days,
        cluster: str = "",
        reservations: "ReservationsDatabase | None" = None,
        airport: Path | None = None,
        fleet: "HiveLog | None" = None,
    ) -> None:
        self._warehouse = Path(warehouse)
        self._store = store
        self._path = state
        self._cluster = cluster
        self._reservations = reservations
        self._airport = airport
        self._fleet = fleet
        self._exports: dict[dt.date, str] = {}
        self._tables: dict[str, DeltaTable] = {}
        self.plan = Plan(seed=seed, days=days)
        self.state = self._stopped()

    def run(
        self,
        *,
        hours_per_second: float | None = None,
        hours: int | None = None,
        progress: Callable[[Progress], None] = lambda _: None,
        stop: threading.Event | None = None,
    ) -> ReplayState:
        """Replay until the end of the plan, for some hours, or until `stop` is set; without a speed
        as fast as possible.

        Raises:
            LakeChimeError: while another replay runs here; two at once would write rows twice.
        """
        if hours_per_second is not None and not hours_per_second > 0:
            raise InvalidValueError(
                "hours_per_second", hours_per_second, "is not a positive number"
            )
        halt = stop or threading.Event()
        with _only_one(self._path):
            self.state = self._stopped()
            last = (
                self.plan.ticks if hours is None else min(self.plan.ticks, self.state.ticks + hours)
            )
            self._open_fleet()
            for tick in range(self.state.ticks):
                self._write_events(tick)
                self._export_fleet(tick)
            due = time.monotonic()
            while self.state.ticks < last and not halt.is_set():
                progress(self.advance())
                due += 0 if hours_per_second is None else 1 / hours_per_second
                halt.wait(max(0.0, due - time.monotonic()))
        return self.state

    def advance(self) -> Progress:
        """Do one tick, and keep that it is done."""
        tick = self.state.ticks
        rows = commits = 0
        notes: list[str] = []
        for index, action in enumerate(self.plan.actions(tick)):
            if isinstance(action, Complete):
                self._complete(action.partition)
                continue
            written = action.rows
            if written.num_rows:
                self._write(action, written, tick * MOST_ACTIONS + index + 1)
                rows, commits = rows + written.num_rows, commits + 1
                notes += [action.note] if action.note else []
        if self._reservations is not None:
            rows += self._reservations.advance(self.plan, tick + 1)
        self._write_events(tick)
        notes += self._export_fleet(tick)
        self.state = ReplayState(seed=self.plan.seed, days=self.plan.days, ticks=tick + 1)
        self.state.save(self._path)
        return Progress(
            ticks=tick + 1,
            of=self.plan.ticks,
            hour=hour_of(tick),
            rows=rows,
            commits=commits,
            notes=tuple(notes),
        )

    def _stopped(self) -> ReplayState:
        """Where the last replay stopped."""
        begun = ReplayState.load(self._path) or ReplayState(
            seed=self.plan.seed, days=self.plan.days
        )
        if begun.plan != self.plan:
            other = (
                f"another one began here (seed {begun.seed}, {begun.days} days); go on with it, or "
                f"use a new home"
            )
            raise InvalidValueError(
                "replay", f"seed {self.plan.seed}, {self.plan.days} days", other
            )
        return begun

    def _write(self, action: Write, rows: pa.Table, number: int) -> None:
        table, day, hour = action.partition
        location = self._location(table)
        known = self._open(table)
        if known is None or (known.transaction_version(APP_ID) or 0) < number:
            tags = {"producer": "replay"} | (
                {"mishap": action.note.partition(":")[0]} if action.note else {}
            )
            where = known or str(location)
            commit = CommitProperties(
                custom_metadata={TAGS_KEY: json.dumps(tags)},
                app_transactions=[Transaction(APP_ID, number)],
            )
            if action.how is How.REPLACE:
                only = f"flight_date = '{day}' AND hour = {hour}"
                write_deltalake(
                    where, rows, mode="overwrite", predicate=only, commit_properties=commit
                )
            else:
                properties = {"delta.enableChangeDataFeed": "true"}
                write_deltalake(
                    where,
                    rows,
                    mode="append",
                    partition_by=list(HOUR),
                    configuration=properties,
                    commit_properties=commit,
                )
        self._push(table)

    def _write_events(self, tick: int) -> None:
        """Write the file of the airports' events of a tick, unless it exists; a reader sees all of
        it or nothing.
        """
        if (
            self._airport is None
            or (path := self._airport / file_of(tick)).exists()
            or not (lines := self.plan.airport_lines(tick))
        ):
            return
        self._airport.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".new")
        beside.write_text("".join(f"{line.text}\n" for line in lines), encoding="utf-8")
        beside.replace(path)

    def _open_fleet(self) -> None:
        """Make the table of the fleet where it is missing, and find the newest export of each day."""
        if self._fleet is None:
            return
        location = str(self._location(fleet.name))
        self._fleet.create(FLEET_TYPES, fleet.levels.as_dict(), location)
        for folders in self._fleet.stored().folders.values():
            for one in folders:
                day = dt.date.fromisoformat(str(one.values[0]))
                self._exports[day] = one.location.rpartition("/")[2]

    def _export_fleet(self, tick: int) -> list[str]:
        """Replace a day of the fleet by the export of a tick, unless it has it or a later one; what
        is unusual about it.

        Its rows are in a folder of their own, which then becomes that of the partition.
        """
        export = self.plan.fleet_export(tick)
        if (
            self._fleet is None
            or export is None
            or self._exports.get(export.day, "") >= export.name
        ):
            return []
        folder = self._location(fleet.name) / export.name
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(export.rows, folder / "planes.parquet")
        tags = json.dumps({"producer": "replay", **COMPLETE_TAGS})
        self._fleet.swap({(str(export.day),): str(folder)}, (), {TAGS_KEY: tags})
        self._exports[export.day] = export.name
        return [export.note] if export.note else []

    def _push(self, table: str) -> None:
        """Register what the table's log says since the last look, this commit and those of an
        interrupted tick.
        """
        log = DeltaLog(str(self._location(table)), table, self._cluster)
        record = self._store.table(table, self._cluster)
        if record is None or record.seen is None or record.table_uid is None:
            for version in range(log.version + 1):
                self._store.register(log.events_of_commit(version), seen=[log.seen(version)])
            return
        captured = log.changes_after(Seen(table, record.table_uid, record.seen, self._cluster))
        self._store.register(captured.events, seen=[captured.seen])

    def _complete(self, partition: Partition) -> None:
        table, day, hour = partition
        marker = DataChangeEvent(
            table=table,
            partition=(day.isoformat(), hour),
            tags=COMPLETE_TAGS,
            cluster=self._cluster,
            event_key=f"complete/{day}/{hour}",
        )
        self._store.register([marker])

    def _open(self, table: str) -> DeltaTable | None:
        """The table as it is now, or None before its first commit."""
        location = str(self._location(table))
        known = self._tables.get(table)
        if known is not None:
            known.update_incremental()
        elif DeltaTable.is_deltatable(location):
            known = self._tables[table] = DeltaTable(location)
        return known

    def _location(self, table: str) -> Path:
        return self._warehouse.joinpath(*table.split("."))


@contextmanager
def _only_one(state: Path) -> Iterator[None]:
    """Holds the lock of the replay that keeps its state in this file."""
    state.parent.mkdir(parents=True, exist_ok=True)
    try:
        with locked(state.with_suffix(".lock"), 0):
            yield
    except TimeoutError:
        raise LakeChimeError(
            f"another replay runs in {state.parent}; wait for it, or end it (`lakechime dev` runs "
            f"one too)"
        ) from None


def hour_of(tick: int) -> str:
    """The hour of 2013 that a tick stands for; after the last day the clock runs on."""
    return f"{FIRST_DAY + dt.timedelta(days=tick // HOURS)} {tick % HOURS:02}:00"
