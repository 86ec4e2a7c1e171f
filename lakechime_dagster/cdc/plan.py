"""Checks a sample of a CDC table's messages for how their connector is set up, with a remedy for
each finding.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakechime_dagster.cdc.change import Change, Operation
from lakechime_dagster.cdc.job import format_of
from lakechime_dagster.cdc.record import (
    Changes,
    EnvelopeReader,
    OtherTable,
    Reading,
    Record,
    Unreadable,
    parsed,
    parts_of,
    read_of,
)
from lakechime_dagster.cdc.service import Replica
from lakechime_dagster.cdc.values import ConnectSchema, connect_schema
from lakechime_dagster.compat import StrEnum
from lakechime_dagster.tables.databases import Canal, Debezium, Dms, Envelope, Maxwell

MESSAGES = 200  # that are read

_ONE_PARTITION = "keep all messages of the table in one partition"
_POSITION_REMEDIES: Mapping[type[Envelope], str] = {
    Debezium: (
        "let the tool write Debezium's `source` block with its position (flattened: "
        "`add.fields=source.connector,source.file,source.pos,"
        f"source.row`, of PostgreSQL `source.connector,source.lsn,source.sequence`), or "
        f"{_ONE_PARTITION}"
    ),
    Maxwell: "set `output_binlog_position=true`",
    Dms: "set `IncludeTransactionDetails` (MySQL, MariaDB)",
}


class Weight(StrEnum):
    """How grave a finding is: an error loses or refuses rows, a warning may."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding:
    """Something about the messages, and what to do about it."""

    weight: Weight
    about: str
    problem: str
    remedy: str


@dataclass(frozen=True)
class Sample:
    """Some messages of a CDC table, and what was read of them."""

    envelope: Envelope
    keys: tuple[str, ...]
    messages: tuple[tuple[Record, Reading], ...] = ()

    @classmethod
    def read(
        cls,
        envelope: Envelope,
        keys: Sequence[str],
        records: Sequence[Record],
        reader: EnvelopeReader,
    ) -> "Sample":
        return cls(
            envelope, tuple(keys), tuple((record, reader.read(record)) for record in records)
        )

    @property
    def changes(self) -> list[tuple[Record, Change]]:
        return [
            (record, one)
            for record, reading in self.messages
            if isinstance(reading, Changes)
            for one in reading.changes
        ]

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the messages' schemas, with their types."""
        readings = [reading for _, reading in self.messages if isinstance(reading, Changes)]
        return {name: ddl for reading in readings for name, ddl in reading.types.items()}

    @property
    def sources(self) -> list[str]:
        return sorted({change.source for _, change in self.changes})

    @property
    def kinds(self) -> dict[str, int]:
        """How many messages are what."""
        return dict(Counter(read_of(reading).kind for _, reading in self.messages))


def sample_of(replica: Replica) -> Sample:
    """The newest messages of a table's bronze table."""
    bronze = replica.table.bronze
    messages = format_of(bronze)
    return Sample.read(
        bronze.envelope, messages.message_keys, replica.sample(MESSAGES), messages.reader()
    )


def findings(sample: Sample) -> list[Finding]:
    """What the messages show of how their connector is set up; the gravest first."""
    found = [
        *_unreadable(sample),
        *_keys(sample),
        *_positions(sample),
        *_sources(sample),
        *_before(sample),
        *_defaults(sample),
    ]
    return sorted(found, key=lambda one: list(Weight).index(one.weight))


def _unreadable(sample: Sample) -> Iterator[Finding]:
    reasons = [reading.reason for _, reading in sample.messages if isinstance(reading, Unreadable)]
    untyped = [
        reason
        for reason in reasons
        if reason.startswith("schema:") or "no type is declared" in reason
    ]
    if untyped:
        remedy = (
            "name each column's type in types={…}, as `lakechime cdc check --types` writes them"
        )
        if isinstance(sample.envelope, Debezium):
            remedy = (
                "set `value.converter.schemas.enable=true` (and of the key) in the connector, or "
                "declare SourceSchema(read_from=…)"
            )
        yield Finding(
            Weight.ERROR,
            "types",
            f"{_of(untyped, sample)} have no types of their columns: {untyped[0]}",
            remedy,
        )
    if others := [reason for reason in reasons if reason not in untyped]:
        remedy = (
            "check that envelope= is the tool that writes them; each is kept in the bronze table "
            "with its reason"
        )
        yield Finding(
            Weight.ERROR, "messages", f"{_of(others, sample)} cannot be read: {others[0]}", remedy
        )


def _keys(sample: Sample) -> Iterator[Finding]:
    """How the keys of messages compare with the declared key."""
    remedy = _key_remedy(sample)
    bare = [record for record, _ in sample.changes if record.key is None]
    if bare and not isinstance(sample.envelope, Canal | Dms):
        problem = (
            f"{_of(bare, sample)} have no key, so that the messages of a row may be in several "
            f"partitions"
        )
        yield Finding(Weight.WARNING, "keys", problem, remedy)
    for columns in sorted(
        {
            columns
            for record, _ in sample.changes
            if (columns := _key_columns(record.key, sample.envelope))
        }
    ):
        if more := sorted(set(columns) - set(sample.keys)):
            problem = (
                f"the messages' key has {', '.join(more)}, which the declared key lacks: rows that "
                f"differ in it become one"
            )
            yield Finding(
                Weight.ERROR,
                "keys",
                problem,
                f"declare keys=({', '.join(map(repr, columns))}), unless {sample.keys} is unique",
            )
        elif less := sorted(set(sample.keys) - set(columns)):
            problem = f"the messages' key lacks {', '.join(less)} of the declared key"
            yield Finding(
                Weight.WARNING,
                "keys",
                f"{problem}, so that the messages of a row may be in several partitions",
                remedy,
            )


def _key_remedy(sample: Sample) -> str:
    """What puts all messages of a row into one partition."""
    if isinstance(sample.envelope, Maxwell):
        return (
            f"set `producer_partition_by=column` and "
            f"`producer_partition_columns={','.join(sample.keys)}`"
        )
    if isinstance(sample.envelope, Debezium):
        return (
            f"set `message.key.columns=<database>.<table>:{','.join(sample.keys)}` in the connector"
        )
    return _ONE_PARTITION


def _positions(sample: Sample) -> Iterator[Finding]:
    streamed = [
        (record, change)
        for record, change in sample.changes
        if change.operation is not Operation.READ
    ]
    bare = [record for record, change in streamed if not change.order.position]
    if not bare:
        return
    problem, weight = (
        (
            f"{_of(bare, sample)} have no position in the database's log: their topic's order is the "
            f"only one"
        ),
        Weight.WARNING,
    )
    if len(bare) < len(streamed):
        problem, weight = (
            f"{problem}, and they are older than all changes with a position",
            Weight.ERROR,
        )
    elif len({(record.topic, record.partition) for record in bare}) > 1:
        problem, weight = (
            f"{problem}; they are in several partitions, which have no order among them",
            Weight.ERROR,
        )
    yield Finding(
        weight, "position", problem, _POSITION_REMEDIES.get(type(sample.envelope), _ONE_PARTITION)
    )


def _sources(sample: Sample) -> Iterator[Finding]:
    if len(sample.sources) > 1:
        some = ", ".join(sample.sources[:3])
        problem = (
            f"messages of {len(sample.sources)} sources ({some}) feed one table: a key of two of "
            f"them is refused"
        )
        remedy = (
            "name its table in source= (database=, table=), the topics of one table, or a key that "
            "differs between the sources"
        )
        yield Finding(Weight.WARNING, "sources", problem, remedy)
    names = sorted(
        {reading.name for _, reading in sample.messages if isinstance(reading, OtherTable)}
    )
    if names and not sample.changes:
        problem = (
            f"no message is of a table that database= and table= of source= accept; they are of "
            f"{', '.join(names[:3])}"
        )
        yield Finding(
            Weight.ERROR,
            "table filter",
            problem,
            "correct them; without them all tables of the topics are read",
        )


def _before(sample: Sample) -> Iterator[Finding]:
    """Updates without the row before them."""
    if not isinstance(sample.envelope, Debezium):
        return
    updates = [
        one
        for one in (_object(record.value) for record, _ in sample.messages)
        if one.get("op") == "u" and "after" in one
    ]
    if bare := [one for one in updates if one.get("before") is None]:
        consequence = "a change of a declared key that is not the message's is not seen"
        problem = f"{len(bare)} of {len(updates)} updates lack the row before them: {consequence}"
        remedy = (
            "PostgreSQL: ALTER TABLE … REPLICA IDENTITY FULL; MySQL, MariaDB: SET GLOBAL "
            "binlog_row_image = 'FULL'"
        )
        yield Finding(Weight.WARNING, "row before", problem, remedy)


def _defaults(sample: Sample) -> Iterator[Finding]:
    """Columns whose null Connect's converter may have replaced."""
    if names := sorted(
        {name for record, _ in sample.messages for name in _with_default(record.value)}
    ):
        problem = (
            f"{', '.join(names)} have a default and may be null: a null may have been replaced by "
            f"the default"
        )
        remedy = "set `value.converter.replace.null.with.default=false` in the connector"
        yield Finding(Weight.WARNING, "nulls", problem, remedy)


def _with_default(raw: bytes | None) -> Iterator[str]:
    """The columns of a message's schema that have a default and may be null."""
    schema, _ = parts_of(_parsed(raw))
    try:
        described = connect_schema(schema) if schema else ConnectSchema("struct")
    except ValueError:
        return  # it is unreadable, which is a finding of its own
    row = described.field("after") or described
    yield from (name for name, one in row.fields if one.is_optional and one.default is not None)


def _key_columns(raw: bytes | None, envelope: Envelope) -> tuple[str, ...]:
    """The columns in a message's key, which Maxwell calls `pk.…`; none where the key has no
    names.
    """
    names = tuple(_object(raw))
    if isinstance(envelope, Maxwell):
        return tuple(name.removeprefix("pk.") for name in names if name.startswith("pk."))
    return names


def _object(raw: bytes | None) -> Mapping[str, Any]:
    """The payload of a message, or of a key; empty where it is no object."""
    _, payload = parts_of(_parsed(raw))
    return payload if isinstance(payload, dict) else {}


def _parsed(raw: bytes | None) -> Any:
    try:
        return None if raw is None else parsed(raw, "value", is_exact=False)
    except ValueError:
        return None


def _of(some: Sequence[object], sample: Sample) -> str:
    return f"{len(some)} of {len(sample.messages)} messages"
