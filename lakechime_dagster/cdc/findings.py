"""Checks a sample of messages for how their connector is set up, with a remedy for each finding."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from lakechime_dagster.cdc.change import Change, Operation
from lakechime_dagster.cdc.record import (
    Beat,
    Changes,
    Control,
    EnvelopeReader,
    OtherTable,
    Reading,
    Record,
    Tombstone,
    TransactionEnd,
    Unreadable,
    parts_of,
)
from lakechime_dagster.cdc.schema import why_not_taken
from lakechime_dagster.compat import StrEnum
from lakechime_dagster.tables.databases import Canal, Debezium, Dms, Envelope, Maxwell

TRANSACTIONS = "set `provide.transaction.metadata=true` in the connector"


_ONE_PARTITION = "keep all messages of the table in one partition"
_POSITION_REMEDIES: Mapping[type[Envelope], str] = {
    Debezium: (
        "let the tool write Debezium's `source` block with its position (flattened: `add.fields=source.connector,source.file,source.pos,"
        f"source.row`, of PostgreSQL `source.connector,source.lsn,source.sequence`), or {_ONE_PARTITION}"
    ),
    Maxwell: "set `output_binlog_position=true`",
    Dms: "set `IncludeTransactionDetails` (MySQL, MariaDB)",
}


class Weight(StrEnum):
    """How grave a finding is: what is wrong, what may be, and what no message tells."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """Something about a source, and what to do about it."""

    weight: Weight
    about: str
    problem: str
    remedy: str


@dataclass(frozen=True)
class Sample:
    """Some messages of a feed, and what was read of them."""

    envelope: Envelope
    keys: tuple[str, ...]
    messages: tuple[tuple[Record, Reading], ...] = field(default=())

    @classmethod
    def read(cls, envelope: Envelope, keys: Sequence[str], records: Iterable[Record], reader: EnvelopeReader) -> "Sample":
        return cls(envelope, tuple(keys), tuple((record, reader.read(record)) for record in records))

    @property
    def changes(self) -> list[tuple[Record, Change]]:
        return [(record, one) for record, reading in self.messages if isinstance(reading, Changes) for one in reading.changes]

    @property
    def columns(self) -> dict[str, str]:
        """The columns that messages tell, with their types."""
        readings = [reading for _, reading in self.messages if isinstance(reading, Changes)]
        return {name: ddl for reading in readings for name, ddl in reading.types.items()}

    @property
    def sources(self) -> list[str]:
        return sorted({change.source for _, change in self.changes})

    @property
    def connectors(self) -> list[str]:
        """The connectors that messages name."""
        blocks = [_mapping(payload.get("source")) for payload in self.payloads]
        return sorted({str(block["connector"]) for block in blocks if block.get("connector")})

    @property
    def payloads(self) -> list[Mapping[str, Any]]:
        """The objects that messages are, without the schemas before them."""
        found = (_payload(record.value) for record, _ in self.messages)
        return [payload for payload in found if isinstance(payload, Mapping)]

    @property
    def kinds(self) -> dict[str, int]:
        """How many messages are what."""
        counted: dict[str, int] = {}
        for _, reading in self.messages:
            counted[_kind(reading)] = counted.get(_kind(reading), 0) + 1
        return counted


def findings(sample: Sample) -> list[Finding]:
    """What messages tell of how their connector is set up, and what of it no message tells; the gravest first."""
    found = [
        *_unreadable(sample),
        *_keys(sample),
        *_positions(sample),
        *_sources(sample),
        *_other_tables(sample),
        *_before(sample),
        *_inexact(sample),
    ]
    if isinstance(sample.envelope, Debezium):
        found += [*_defaults(sample), *_untold(sample)]
    return sorted(found, key=lambda one: list(Weight).index(one.weight))


def without_transactions(sample: Sample) -> list[Finding]:
    """That changes which were read of the log tell no transaction, where the connector's topic of transactions is declared."""
    streamed = [
        reading
        for _, reading in sample.messages
        if isinstance(reading, Changes) and any(one.operation is not Operation.READ and one.snapshot is None for one in reading.changes)
    ]
    bare = [one for one in streamed if one.placed is None]
    if not bare:
        return []
    problem = f"{_of(bare, sample)} tell no transaction, so that transactions= says nothing of whether all came"
    remedy = f"{TRANSACTIONS}; where it flattens, name transaction.id,transaction.data_collection_order in `add.fields`"
    return [Finding(Weight.WARNING, "transactions", problem, remedy)]


def untaken(sample: Sample, names: Mapping[str, str], takes: Callable[[str], bool]) -> list[Finding]:
    """The columns that a table cannot have, by the names there of those that are declared, where it takes them."""
    carried = dict.fromkeys((name for _, change in sample.changes for name in change.columns), "string")
    refused: dict[str, str] = {}
    for name, ddl in {**carried, **sample.columns}.items():
        here = names.get(name, name)
        if takes(here) and (why := why_not_taken(here, ddl)):
            refused[name] = why
    if not refused:
        return []
    problem = "; ".join(f"{name!r} is left out: {why}" for name, why in refused.items())
    remedy = f"give another name by names={{{', '.join(f'{name!r}: …' for name in refused)}}}, or name it in merge.except_column_list"
    return [Finding(Weight.ERROR, "columns", problem, remedy)]


def _unreadable(sample: Sample) -> Iterator[Finding]:
    reasons = [reading.reason for _, reading in sample.messages if isinstance(reading, Unreadable)]
    without_types = [reason for reason in reasons if reason.startswith("schema:") or "no type is declared" in reason]
    if without_types:
        connector = "set `value.converter.schemas.enable=true` (and of the key) in the connector"
        remedy = f"{connector}, or declare ddl= of its source, or read_from= of its schema"
        if not isinstance(sample.envelope, Debezium):
            remedy = (
                "name each column's type in types={…}, as `lakechime cdc plan --types` writes them, or declare SourceSchema(read_from=…)"
            )
        yield Finding(Weight.ERROR, "types", f"{_of(without_types, sample)} bring no types of their columns: {without_types[0]}", remedy)
    if others := [reason for reason in reasons if reason not in without_types]:
        remedy = "check that envelope= is the tool that writes them; each is kept in the bronze table with its reason"
        yield Finding(Weight.ERROR, "messages", f"{_of(others, sample)} cannot be read: {others[0]}", remedy)


def _keys(sample: Sample) -> Iterator[Finding]:
    """How the keys of messages stand to the declared key."""
    told = [(record, _key_columns(record.key, sample.envelope)) for record, _ in sample.changes]
    bare = [record for record, columns in told if record.key is None]
    remedy = _key_remedy(sample)
    if bare and not isinstance(sample.envelope, Canal | Dms):
        problem = f"{_of(bare, sample)} have no key, so that the messages of a row may be in several partitions"
        yield Finding(Weight.WARNING, "keys", problem, remedy)
    for columns in sorted({columns for _, columns in told if columns}):
        if more := sorted(set(columns) - set(sample.keys)):
            problem = f"the messages' key has {', '.join(more)}, which the declared key lacks: rows that differ in it become one"
            yield Finding(Weight.ERROR, "keys", problem, f"declare keys=({', '.join(map(repr, columns))}), unless {sample.keys} is unique")
        elif less := sorted(set(sample.keys) - set(columns)):
            problem = f"the messages' key lacks {', '.join(less)} of the declared key"
            if isinstance(sample.envelope, Debezium):
                problem += ": deletions tell it by their before image alone"
            else:
                problem += ", so that the messages of a row may be in several partitions"
            yield Finding(Weight.WARNING, "keys", problem, remedy)


def _key_remedy(sample: Sample) -> str:
    """What makes the messages of a row have its declared key, and so be in one partition."""
    if isinstance(sample.envelope, Maxwell):
        columns = ",".join(sample.keys)
        return f"set `producer_partition_by=column` and `producer_partition_columns={columns}`, or `producer_partition_by=primary_key`"
    if isinstance(sample.envelope, Debezium):
        return f"set `message.key.columns=<database>.<table>:{','.join(sample.keys)}` in the connector"
    return _ONE_PARTITION


def _read_again(sample: Sample) -> int:
    """How many rows a snapshot without positions read after changes with one had been written to the same partition."""
    first: dict[tuple[str, int], int] = {}
    for record, change in sample.changes:
        if change.order.position and change.operation is not Operation.READ:
            at = record.topic, record.partition
            first[at] = min(record.offset, first.get(at, record.offset))
    read = [record for record, change in sample.changes if change.operation is Operation.READ and not change.order.position]
    return sum(record.offset > first.get((record.topic, record.partition), record.offset) for record in read)


def _positions(sample: Sample) -> Iterator[Finding]:
    bare = [change for _, change in sample.changes if not change.order.position]
    streamed = [change for change in bare if change.operation is not Operation.READ]
    has_positions = len(bare) < len(sample.changes)
    if len(bare) > len(streamed) and has_positions:
        problem = f"{_of(bare, sample)} of a snapshot have no position in the database's log: they are older than all changes with one"
        weight, remedy = Weight.NOTE, "nothing, unless a snapshot is taken again: its rows replace none that a change with a position wrote"
        if again := _read_again(sample):
            weight, remedy = Weight.WARNING, "bring the database's rows with their place by `lakechime cdc load`"
            problem = f"{problem}; {again:,} of them follow such changes in their partition, and do not replace the rows of these"
        yield Finding(weight, "snapshot", problem, remedy)
    if not streamed:
        return
    partitions = {(record.topic, record.partition) for record, _ in sample.changes}
    problem, weight = f"{_of(streamed, sample)} tell no position in the database's log, so that", Weight.WARNING
    if has_positions and any(change.order.position and change.operation is not Operation.READ for _, change in sample.changes):
        problem, weight = f"{problem} they are older than all changes with one", Weight.ERROR
    else:
        problem = f"{problem} their topic's order is the only one"
    if len(partitions) > 1:
        problem, weight = f"{problem}; they are in {len(partitions)} partitions, among which nobody can say what came first", Weight.ERROR
    yield Finding(weight, "position", problem, _POSITION_REMEDIES.get(type(sample.envelope), _ONE_PARTITION))


def _sources(sample: Sample) -> Iterator[Finding]:
    if len(sample.sources) > 1:
        some = ", ".join(sample.sources[:3])
        problem = f"messages of {len(sample.sources)} sources ({some}) feed one table: a key of two of them is refused"
        remedy = "name its table in source= (database=, table=), the topics of one table, or a key that tells the sources apart"
        yield Finding(Weight.WARNING, "sources", problem, remedy)


def _other_tables(sample: Sample) -> Iterator[Finding]:
    """Messages of other tables than the declared filter accepts, where none is of one that it accepts."""
    names = sorted({reading.name for _, reading in sample.messages if isinstance(reading, OtherTable)})
    if names and not sample.changes:
        some = ", ".join(names[:3])
        problem = f"no message is of a table that database= and table= of source= accept; they are of {len(names)}, such as {some}"
        yield Finding(Weight.ERROR, "table filter", problem, "correct them; without them all tables of the topics are read")


def _before(sample: Sample) -> Iterator[Finding]:
    """Updates that do not tell what was before them."""
    if isinstance(sample.envelope, Debezium):
        updates = [one for one in sample.payloads if one.get("op") == "u" and "after" in one]
        bare = [one for one in updates if one.get("before") is None]
        problem = "updates do not tell the row before them: a change of a declared key that is not the message's is not seen"
        remedy = "PostgreSQL: ALTER TABLE … REPLICA IDENTITY FULL; MySQL, MariaDB: SET GLOBAL binlog_row_image = 'FULL'"
    elif isinstance(sample.envelope, Dms):
        updates = [one for one in sample.payloads if _operation_of_dms(one) == "update"]
        prefix = sample.envelope.before_prefix
        told = [one.keys() != {"data", "metadata"} or any(n.startswith(prefix) for n in _mapping(one["data"])) for one in updates]
        bare = [one for one, is_told in zip(updates, told, strict=True) if not is_told]
        problem = "updates do not tell the row before them: where a key changes, the old row stays"
        remedy = "set `BeforeImageSettings` of the task (EnableBeforeImage, ColumnFilter pk-only)"
    else:
        return
    if bare:
        yield Finding(Weight.WARNING, "before image", f"{len(bare)} of {len(updates)} {problem}", remedy)


def _inexact(sample: Sample) -> Iterator[Finding]:
    names = sorted(name for name, ddl in sample.columns.items() if ddl in ("float", "double"))
    if names and isinstance(sample.envelope, Debezium):
        problem = f"{', '.join(names)} come as binary numbers: where one is a decimal in the database, digits are lost"
        yield Finding(Weight.WARNING, "decimals", problem, "set `decimal.handling.mode=precise` in the connector")


def _defaults(sample: Sample) -> Iterator[Finding]:
    """Columns whose null may have been replaced by the converter."""
    names = sorted({name for record, _ in sample.messages for name in _with_default(record.value)})
    which = f"{', '.join(names)} have a default and may be null: " if names else ""
    problem = f"{which}whether a null was replaced by the column's default cannot be seen in messages"
    remedy = "set `value.converter.replace.null.with.default=false` in the connector"
    yield Finding(Weight.WARNING if names else Weight.NOTE, "nulls", problem, remedy)


def _untold(sample: Sample) -> Iterator[Finding]:
    """What no message tells."""
    if not any(reading is Control.HEARTBEAT or isinstance(reading, Beat) for _, reading in sample.messages):
        problem = "none of the messages is a heartbeat: a table that does not change and a connector that is stuck look the same"
        yield Finding(Weight.NOTE, "heartbeat", problem, "set `heartbeat.interval.ms=10000` in the connector")
    if not any(change.operation is Operation.TRUNCATE for _, change in sample.changes):
        problem = "whether truncations are told cannot be seen: connectors leave them out by default"
        yield Finding(Weight.NOTE, "truncations", problem, "set `skipped.operations=none` in the connector")


def _of(some: Sequence[object], sample: Sample) -> str:
    return f"{len(some)} of {len(sample.messages)} messages"


def _kind(reading: Reading) -> str:
    match reading:
        case Changes():
            return "change"
        case Tombstone():
            return "tombstone"
        case Beat():
            return Control.HEARTBEAT.value
        case TransactionEnd():
            return Control.TRANSACTION.value
        case Control() as control:
            return control.value
        case OtherTable():
            return "other table"
        case Unreadable():
            return "unreadable"


def _object(raw: bytes | None) -> Mapping[str, Any]:
    try:
        found = None if raw is None else orjson.loads(raw)
    except ValueError:
        return {}
    return _mapping(found)


def _payload(raw: bytes | None) -> Any:
    return parts_of(_object(raw))[1]


def _mapping(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _key_columns(raw: bytes | None, envelope: Envelope) -> tuple[str, ...]:
    """The columns in a message's key, which Maxwell calls `pk.…`; none where the key tells no columns."""
    names = tuple(_mapping(_payload(raw)))
    if isinstance(envelope, Maxwell):
        return tuple(name.removeprefix("pk.") for name in names if name.startswith("pk."))
    return names


def _with_default(raw: bytes | None) -> Iterator[str]:
    """The columns of a message's schema that have a default and may be null."""
    fields = _fields(_object(raw).get("schema"))
    row = next((_fields(one) for one in fields if one.get("field") == "after"), fields)
    for one in row:
        if one.get("optional") and one.get("default") is not None:
            yield str(one.get("field"))


def _fields(schema: object) -> list[Mapping[str, Any]]:
    found = _mapping(schema).get("fields")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _operation_of_dms(payload: Mapping[str, Any]) -> object:
    return _mapping(payload.get("metadata")).get("operation")
