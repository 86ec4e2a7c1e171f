"""CDC tables: what exists of them, and what is done about them beside their refresh."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from lakechime_dagster.cdc.change import Key, key_text
from lakechime_dagster.cdc.job import MessageFormat, format_of
from lakechime_dagster.cdc.record import Record, record_of
from lakechime_dagster.cdc.record import key_text as bronze_key
from lakechime_dagster.cdc.state import (
    PartitionPosition,
    StateRow,
    TableSchema,
    opened_epochs,
    opened_row,
    positions_of,
    waiting_keys,
)
from lakechime_dagster.cdc.values import decoded, natural_type
from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.errors import ConsumerConflictError, InvalidValueError, LakeChimeError
from lakechime_dagster.formats.delta import DeltaLog
from lakechime_dagster.formats.delta_rows import DeltaRows, append_once, texts
from lakechime_dagster.runtime.platform import Platform, ends_of_blocked
from lakechime_dagster.tables.cdc import STATE, CDCTable
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.names import DELETED_AT
from lakechime_dagster.triggers.consumers import ConsumerId, ConsumerState, Execution
from lakechime_dagster.triggers.interventions import Interventions
from lakechime_dagster.triggers.registry import By, ConsumerRow
from lakechime_dagster.triggers.subscription import Subscription

if TYPE_CHECKING:
    from lakechime_dagster.formats.iceberg import IcebergRows

    TargetRows = DeltaRows | IcebergRows

QUARANTINE = "__quarantine"
MOST_REMEMBERED = 100_000  # rows by which it is counted what waits
MESSAGE = (
    "topic",
    "topic_id",
    "partition",
    "offset",
    "timestamp",
    "key",
    "value",
    "key_bytes",
    "value_bytes",
    "headers",
)
READ = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "kind",
    "source",
    "op",
    "row_key",
    "position",
    "ts_ms",
    "snapshot",
    "problem",
)


@dataclass(frozen=True, kw_only=True)
class ReplicaTables:
    """The rows of a CDC table, the logs of its bronze table and of its state, and how its messages
    are read.

    Attributes:
        names: The table's names of columns that have others in the database, by those.
        consumer: The one that commits to the table.
        checkpoint: Reads the consumer's checkpoint of the bronze table, which may be ahead of the
            table's last commit.
    """

    name: str
    format: MessageFormat
    names: Mapping[str, str]
    rows: "TargetRows"
    bronze: DeltaLog
    state: DeltaLog
    consumer: ConsumerId
    checkpoint: Callable[[], SnapshotCheckpoint | None] = lambda: None

    def typed_format(self) -> MessageFormat:
        """How messages are read, with what is recorded of columns that they do not describe
        themselves.
        """
        if not self.format.is_typed_externally:
            return self.format
        rows = state_rows(DeltaRows(self.state).select(where=("role = 'schema'",)))
        return replace(self.format, tables=tuple(map(TableSchema.of_row, rows)))


@dataclass(frozen=True)
class Replica:
    """A declared CDC table in a deployment, and the tables that belong to it."""

    platform: Platform
    table: CDCTable

    @property
    def location(self) -> str:
        return self.platform.location(self.table.name, self.table.location)

    @property
    def tables(self) -> ReplicaTables:
        table, ledger = self.table, self.platform.ledger

        def checkpoint() -> SnapshotCheckpoint | None:
            consumer = self.consumer(table.name)
            return (
                consumer.checkpoint.sources.get(table.bronze.name) if consumer is not None else None
            )

        return ReplicaTables(
            name=table.name,
            format=format_of(table.bronze),
            names=table.names,
            rows=self.target,
            bronze=self.bronze.log,
            state=self.state.log,
            consumer=ConsumerId(ledger.deployment, table.name),
            checkpoint=checkpoint,
        )

    @property
    def target(self) -> "TargetRows":
        if self.table.format is TableFormat.ICEBERG:
            log = self.platform.iceberg_log(
                self.table.name
            )  # asks for the extra where it is missing
            from lakechime_dagster.formats.iceberg import IcebergRows

            return IcebergRows(log)
        return self._rows(self.table.name, self.location)

    @property
    def bronze(self) -> DeltaRows:
        bronze = self.table.bronze
        return self._rows(bronze.name, self.platform.location(bronze.name, bronze.location))

    @property
    def state(self) -> DeltaRows:
        return self._rows(self.table.name + STATE, self.location.rstrip("/") + STATE)

    @property
    def quarantine(self) -> DeltaRows:
        return self._rows(self.table.name + QUARANTINE, self.location.rstrip("/") + QUARANTINE)

    def consumer(self, subscription: str) -> ConsumerRow | None:
        """The consumer of the table, or of its bronze table; None before its first execution."""
        row = self.platform.ledger.subscription(subscription)
        return None if row is None else self.platform.ledger.consumers(row).get("")

    def rows(self) -> int:
        """How many rows there are, but for those that stay though the database deleted them."""
        return self.target.count() - (self.deleted() or 0)

    def deleted(self) -> int | None:
        """How many rows stay though the database deleted them; None of a table that keeps none."""
        return self.target.count_known(DELETED_AT) if DELETED_AT in self.target.types() else None

    def changes(self) -> int:
        """How many changes are remembered."""
        return self.state.count("role = 'change'")

    def waiting(self) -> int | None:
        """How many rows wait for a column; None where so much is remembered that it is not
        counted.
        """
        rows = self._state(
            "key IN (SELECT key FROM t WHERE omitted IS NOT NULL) OR role = 'truncation'"
        )
        while keys := {row.continues for row in rows if row.continues} - {row.key for row in rows}:
            found = self._state(texts("key", *sorted(keys)))
            if not found:
                break
            rows += found
        return None if len(rows) >= MOST_REMEMBERED else len(waiting_keys(rows))

    def positions(self) -> list[StateRow]:
        """What is remembered of how far the sources have come."""
        return self._state("role = 'position'")

    # One key

    def key(self, values: Sequence[Any]) -> Key:
        """The values of a key, as JSON has them, as those of the columns' types.

        Raises:
            InvalidValueError: they are not as many as the key has columns, or one is not of its
                column's type.
        """
        names, types = (
            self.table.keys,
            dict(self.table.bronze.schema.types or {}) | self.target.types(),
        )
        if len(values) != len(names):
            raise InvalidValueError(
                "key",
                json.dumps(values, default=str),
                f"has {len(values)} values; give those of {', '.join(names)}",
            )
        try:
            return tuple(
                value if name not in types else decoded(name, natural_type(types[name]), value)
                for name, value in zip(names, values, strict=True)
            )
        except ValueError as problem:
            raise InvalidValueError("key", json.dumps(values, default=str), str(problem)) from None

    def rows_of(self, key: Key) -> list[dict[str, Any]]:
        """The rows of a key in the table."""
        return self.target.with_values(dict(zip(self.table.keys, key, strict=True)))

    def remembered_of(self, key: Key) -> list[dict[str, Any]]:
        """What is remembered of a key, and of keys that continue it."""
        text = key_text(key)
        return self.state.query("SELECT * FROM t WHERE key = :key OR continues = :key", key=text)

    def messages_of(self, key: Key, limit: int) -> list[dict[str, Any]]:
        """The newest messages of a key."""
        return self.bronze.select(
            *READ,
            "value",
            where=(texts("row_key", bronze_key(key)),),
            newest=("timestamp", "offset"),
            limit=limit,
        )

    # Several

    def refused(self, limit: int) -> list[dict[str, Any]]:
        """The newest of what was refused: where each message stands, why, and what it says."""
        found = self.quarantine.select(newest=("number",), limit=limit)
        refused = [(row, json.loads(row["row"], parse_float=Decimal)) for row in found]
        parts = ("topic", "partition", "offset", "key", "message")
        return [
            {
                **{name: text.get(name) for name in parts},
                "reason": row["reason"],
                "number": row["number"],
            }
            for row, text in refused
        ]

    def sample(self, limit: int) -> list[Record]:
        """The newest messages of the bronze table."""
        return [
            record_of(row)
            for row in self.bronze.select(*MESSAGE, newest=("timestamp", "offset"), limit=limit)
        ]

    def _state(self, *where: Any) -> list[StateRow]:
        return state_rows(self.state.select(where=where, limit=MOST_REMEMBERED))

    def _rows(self, name: str, location: str) -> DeltaRows:
        return DeltaRows(self.platform.log_at(location, name))


def state_rows(rows: Iterable[dict[str, Any]]) -> list[StateRow]:
    return [StateRow(*(row.get(name) for name in StateRow._fields)) for row in rows]  # type: ignore[arg-type]


_ASKED = re.compile(r"the position of (\S+) goes back")


@dataclass(frozen=True, kw_only=True)
class TableEpochs:
    """How far the sources of a table have come, and what its consumer waits for.

    Attributes:
        positions: Of each partition of each source.
        opened: By source the newest epoch that may be entered.
        asks: The source whose positions a blocked execution asks to restart; empty where none asks.
        execution: That execution.
    """

    positions: tuple[PartitionPosition, ...]
    opened: dict[str, int]
    asks: str = ""
    execution: Execution | None = None

    @property
    def next(self) -> int:
        """The epoch of the source asked about that is not open yet."""
        return (
            max(
                [
                    self.opened.get(self.asks, 0),
                    *(one.epoch for one in self.positions if one.source == self.asks),
                ]
            )
            + 1
        )


def epochs_of(replica: Replica) -> TableEpochs:
    """What is remembered of the epochs of a table, and whether its consumer waits for an answer."""
    rows = replica.positions()
    positions, opened = tuple(positions_of(rows)), opened_epochs(rows)
    name, ledger = replica.table.name, replica.platform.ledger
    consumer, row = replica.consumer(name), ledger.subscription(name)
    asked = (
        _ASKED.search(consumer.state_reason)
        if consumer is not None and consumer.state is ConsumerState.BLOCKED
        else None
    )
    if asked is None or row is None:
        return TableEpochs(positions=positions, opened=opened)
    execution = next(iter(ledger.open_executions(row)), None)
    return TableEpochs(positions=positions, opened=opened, asks=asked[1], execution=execution)


def confirm_epoch(replica: Replica, subscription: Subscription, epochs: TableEpochs, by: By) -> int:
    """Let the source asked about enter its next epoch, and retry the execution; idempotent for one
    attempt.

    Raises:
        ConsumerConflictError: nothing asks for it.
        TableAbsentError: the table has no state yet.
    """
    name, ledger = replica.table.name, replica.platform.ledger
    row = ledger.subscription(name)
    if row is None or epochs.execution is None:
        raise ConsumerConflictError(
            f"no execution of {name} asks whether positions may restart; nothing was changed"
        )
    execution, epoch = epochs.execution, epochs.next
    row_of_epoch = {"number": execution.number, **opened_row(epochs.asks, epoch)._asdict()}
    is_new = append_once(
        replica.state.log,
        [row_of_epoch],
        f"lakechime/epoch/{execution.execution_id}",
        execution.attempt,
    )
    Interventions(ledger).resume(row, by, ends=ends_of_blocked(replica.platform, subscription, row))
    return epoch if is_new else epochs.opened[epochs.asks]


def check_rebuild(platform: Platform, lake: Lake, name: str) -> None:
    """Refuse to rebuild a CDC table of which the bronze table holds no message: it would be empty.

    Raises:
        LakeChimeError: saying so.
    """
    table = next((one for one in lake.tables if one.name == name), None)
    if isinstance(table, CDCTable) and not Replica(platform, table).bronze.count():
        raise LakeChimeError(
            f"{table.bronze.name} holds no message, so that {name} would be empty; nothing was done"
        )
