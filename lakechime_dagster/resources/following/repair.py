"""Keys of a table that follows a database, read again there and told to the table's messages, from which its lane takes them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from lakechime_dagster.cdc.comparing.checksum import Comparison
from lakechime_dagster.cdc.comparing.compare import Key
from lakechime_dagster.cdc.comparing.monitored import comparison_of, in_batches
from lakechime_dagster.cdc.comparing.repair import ORIGIN, RowWriter, UnrepairableError, Words, left_out, words_of
from lakechime_dagster.cdc.meaning.wire import order_of
from lakechime_dagster.cdc.messages.bronze import COLUMNS, Kind
from lakechime_dagster.cdc.messages.bronze_rows import Message, bronze_row
from lakechime_dagster.cdc.messages.readers import MessageFormat, format_of
from lakechime_dagster.cdc.messages.record import Record
from lakechime_dagster.cdc.order import REPAIRS
from lakechime_dagster.cdc.remembering.state import Role
from lakechime_dagster.lake.change_tables import STATE, ChangeTable
from lakechime_dagster.lake.envelopes import Debezium
from lakechime_dagster.lake.monitors import Monitor
from lakechime_dagster.lake.names import spelled_as
from lakechime_dagster.resources.following.told_cut import cut_told
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.resources.reconcile import reconcile_table

if TYPE_CHECKING:
    from lakechime_dagster.capture.delta import DeltaLog
    from lakechime_dagster.sources.cut import Cut

AT_ONCE = 500  # keys of a statement
HIDDEN = "__"  # with which the names of columns begin that the database does not have
MESSAGE = ("topic", "topic_id", "partition", "offset", "key", "value")


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """What the database says of keys, and the commit of the table of messages that tells it; None in a dry run.

    Attributes:
        cut: The place of the database's log at which they were read.
        rows: Keys that have a row there.
        deletions: Keys that have none.
    """

    cut: str
    rows: tuple[Key, ...]
    deletions: tuple[Key, ...]
    version: int | None = None


@dataclass(frozen=True, kw_only=True)
class RepairTask:
    """What a repair needs to know of a table."""

    name: str
    log: "DeltaLog"
    bronze: "DeltaLog"
    state: "DeltaLog"
    keys: tuple[str, ...]
    format: MessageFormat


def repaired(
    task: RepairTask, monitor: Monitor, keys: Sequence[Key], now_ms: int, *, dry_run: bool = False,
    pause: Callable[[float], None] = time.sleep,
) -> Repaired:  # fmt: skip
    """Read these keys of the database in one cut, and append what it says of them to the table of messages, in one commit.

    The table's lane takes them from there. Each message is read back, and must say what the database says.

    Raises:
        UnrepairableError: no message can say it.
        TableBusyError: transactions that have written to PostgreSQL's table do not end.
        SourceUnreadableError: the database cannot be asked.
        TableAbsentError: the lake has no such table.
    """
    from lakechime_dagster.capture.appending import append_rows
    from lakechime_dagster.sources.tables import TableSide

    words, where = words_told(task), monitor.source_table
    with cut_told(task.bronze, words, monitor, pause) as told:
        comparison = comparison_at(told.cut, task, words, where)
        side, place = TableSide(told.cut.connection, comparison.source(*where)), told.place
        found = {key: row for some in in_batches(dict.fromkeys(keys), AT_ONCE) for key, row in side.values_at(some).items()}
    texts = {key: dict(zip(comparison.columns, found[key], strict=True)) if key in found else None for key in dict.fromkeys(keys)}
    reader = task.format.reader()
    writer = RowWriter(words=words, at=told.at, comparison=comparison, reader=reader)
    at = Record(topic=f"{task.name} repaired", topic_id=REPAIRS + task.name, value=None, headers=dict([ORIGIN]))
    records = [writer.record(replace(at, offset=now_ms * 1_000_000 + number), key, row) for number, (key, row) in enumerate(texts.items())]
    done = Repaired(
        cut=str(place), rows=tuple(key for key, row in texts.items() if row is not None),
        deletions=tuple(key for key, row in texts.items() if row is None),
    )  # fmt: skip
    if dry_run or not records:
        return done
    rows = [bronze_row(Message(record, [ORIGIN], now_ms), reader) for record in records]
    version = append_rows(task.bronze, list(COLUMNS), rows, {"lakechime.origin": "repair", "lakechime.cut": str(place)})
    return Repaired(cut=done.cut, rows=done.rows, deletions=done.deletions, version=version)


def comparison_at(cut: "Cut", task: RepairTask, words: Words, where: tuple[str, str]) -> Comparison:
    """What of the database's table messages carry.

    Raises:
        UnrepairableError: the lake's table is not there yet, or has a column that they cannot carry.
        NotFoundError: the database has no such table.
    """
    from lakechime_dagster.capture.rows import DeltaRows
    from lakechime_dagster.sources.tables import column_types

    lake = {name: kind for name, kind in DeltaRows(task.log).types().items() if not name.startswith(HIDDEN)}
    if not lake:
        raise UnrepairableError(f"{task.name}: the table is not there yet; wait for its first step")
    source = column_types(cut.connection, *where)
    comparison, _ = comparison_of(cut.dialect, source, lake, task.keys, None)
    if lacking := left_out(words, source, list(spelled_as(source, lake)), comparison):
        raise UnrepairableError(
            f"{task.name}: its messages cannot carry {', '.join(lacking)}; put the rows right by a new snapshot of the connector"
        )
    return comparison


def words_told(task: RepairTask) -> Words:
    """The words of the newest message of the table that tells a row.

    Raises:
        UnrepairableError: there is none, or several tables feed this one, or none can be written by it.
    """
    from lakechime_dagster.capture.rows import TABLE, DeltaRows, column, known, texts

    if not isinstance(task.format.envelope, Debezium):
        tool = type(task.format.envelope).__name__
        raise UnrepairableError(f"{task.name}: messages of {tool} cannot be written yet, only Debezium's; load the rows again by that tool")
    if task.format.shards:
        raise UnrepairableError(f"{task.name}: no row of a shard can be written yet; let the connector of that shard take a new snapshot")
    bronze = DeltaRows(task.bronze)
    own = exp.not_(column("topic_id").like(f"{REPAIRS}%"))
    newest = exp.Max(this=column("ts_ms")).as_("newest")
    is_change = texts("kind", Kind.CHANGE.value)  # a heartbeat and a message of another table have a source too
    told = bronze.query(exp.select(column("source"), newest).from_(TABLE).where(is_change, own).group_by(column("source")))
    if len(told) > 1:
        names = ", ".join(sorted(row["source"] for row in told))
        raise UnrepairableError(f"{task.name}: several tables feed it ({names}), and a key is not known to be of one")
    found = bronze.select(*MESSAGE, where=(texts("op", "c", "u", "r"), known("value"), own), newest=("timestamp", "offset"), limit=1)
    if not found:
        raise UnrepairableError(
            f"{task.name}: no message tells a row yet, so that none can be written in its words; start the connector, and wait "
            "for its first change of a row"
        )
    (row,) = found
    _check_epochs(task, told[0]["source"])
    return words_of(task.name, Record(topic=row["topic"], offset=row["offset"], value=row["value"].encode()), told[0]["newest"])


def _check_epochs(task: RepairTask, source: str) -> None:
    """A source whose positions have begun anew has places that a message of a partition of its own does not get to."""
    from lakechime_dagster.capture.rows import DeltaRows, texts

    places = DeltaRows(task.state).select("source", "order", where=(texts("role", Role.PLACE.value),))
    if any(order_of(row["order"]).epoch > 0 for row in places if row["source"] == source):
        raise UnrepairableError(
            f"{task.name}: the positions of {source} have begun anew, and a repair cannot be put behind that yet; let the connector take a "
            "new snapshot"
        )


def repair_declared(platform: Platform, table: ChangeTable, monitor: Monitor, keys: Sequence[Key], *, dry_run: bool = False) -> Repaired:
    """Repair keys of a declared table, and register the commit, so that the table's trigger sees it at once.

    Raises:
        As `repaired`.
    """
    task = task_of(platform, table)
    done = repaired(task, monitor, keys, platform.store.now(), dry_run=dry_run)
    if done.version is not None:
        reconcile_table(platform, task.bronze, table.bronze.levels)
    return done


def task_of(platform: Platform, table: ChangeTable) -> RepairTask:
    """A declared table as repairs look at it."""
    location = platform.location(table.name, table.location)
    return RepairTask(
        name=table.name, log=platform.log_at(location, table.name), bronze=platform.log(table.bronze.name, table.bronze.location),
        state=platform.log_at(location.rstrip("/") + STATE, table.name + STATE), keys=table.keys, format=format_of(table.bronze),
    )  # fmt: skip
