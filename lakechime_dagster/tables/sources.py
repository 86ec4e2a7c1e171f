"""Message sources as declared: files of JSON lines, Kafka topics, rows of a table."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import ClassVar

from lakechime_dagster.dce.events import NamedTable
from lakechime_dagster.errors import DeclarationError, shown
from lakechime_dagster.tables.names import checked_table_name, is_variable, resolved, table_of_lake
from lakechime_dagster.tables.tables import WrittenTable
from lakechime_dagster.triggers.schedule import Schedule
from lakechime_dagster.triggers.triggers import SnapshotTrigger

# of an execution: with messages of 1 kB a driver of 2 GB holds them, and the fixed cost of an
# execution is small
MAX_OFFSETS = 1_000_000
MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class JsonLines:
    """Files of JSON lines in a folder, a message each line; a file may grow, and is read up to its
    last whole line.

    A line is a message's value. With `records=True` it is a Kafka record: `topic`, `partition`,
    `offset`, `key`, `value` as text, `headers` as pairs of texts, and optionally `topic_id` and
    `timestamp_ms`. Empty lines are ignored. Spark's executors must see the folder too.

    Attributes:
        folder: The folder; a relative one is in the project's folder.
        pattern: A glob of the names of files below the folder.
        shards: A regular expression for the names of files (with `records` of their topics), with a
            named group for each shard column.
        records: A line is a whole Kafka record, not only its value.
        database: A glob of the databases whose messages are read (of PostgreSQL and others that
            have them, of the schemas), where files hold those of several; messages of others are
            counted, and nothing else is read of them.
        table: A glob of the tables, likewise.
        transactions: A glob of the topics, among the records, with Debezium's transaction metadata,
            by which lost changes are detected.
        max_bytes: The bytes of whole lines that one execution reads, in the order of file names;
            None is no limit. A longer line is read alone.
        every: How often the folder is polled, such as `every(minutes=5)`; by default at each
            evaluation of its trigger.
    """

    folder: str
    pattern: str = field(default="*.jsonl", kw_only=True)
    records: bool = field(default=False, kw_only=True)
    shards: str = field(default="", kw_only=True)
    database: str = field(default="", kw_only=True)
    table: str = field(default="", kw_only=True)
    transactions: str = field(default="", kw_only=True)
    max_bytes: int | None = field(default=MAX_BYTES, kw_only=True)
    every: Schedule | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_shards("JsonLines", self.shards)
        _check_table_filter("JsonLines", self.database, self.table)
        _check_limit("JsonLines", "max_bytes", self.max_bytes)
        check_every("JsonLines", self.every)
        if self.transactions and not self.records:
            problem = f"{shown(self.transactions)} names topics, which only records=True have"
            raise DeclarationError("JsonLines", "transactions", problem)
        if not isinstance(self.folder, str) or not self.folder.strip() or "://" in self.folder:
            raise DeclarationError(
                "JsonLines",
                "folder",
                f"{shown(self.folder)} is no folder of this machine, or mounted there",
            )
        if (
            not isinstance(self.pattern, str)
            or not self.pattern.strip()
            or {"..", "/"} & {*PurePosixPath(self.pattern).parts}
        ):
            raise DeclarationError(
                "JsonLines",
                "pattern",
                f"{shown(self.pattern)} is no pattern of names below the folder, such as *.jsonl",
            )

    def __str__(self) -> str:
        return f"{self.folder.rstrip('/')}/{self.pattern}"


@dataclass(frozen=True)
class KafkaTopic:
    """Topics of a Kafka cluster.

    Attributes:
        topic: The name of a topic, or a glob.
        bootstrap: Servers, such as `broker:9092`.
        options: Settings of Kafka's clients by librdkafka's names, such as `security.protocol`,
            `sasl.mechanism`, `sasl.username`, `sasl.password`, `ssl.ca.location`. `$NAME` is read
            from the environment.
        heartbeats: A glob of topics with the changes of a heartbeat table of the same database and
            connector. They show how far the log was read while the table is quiet.
        shards: A regular expression for the names of topics, with a named group for each shard
            column.
        database: A glob of the databases whose messages are read (of PostgreSQL and others that
            have them, of the schemas), where topics hold those of several, as Maxwell's do by
            default; messages of others are counted, and nothing else is read of them.
        table: A glob of the tables, likewise.
        transactions: A glob of the topics with transaction metadata
            (`provide.transaction.metadata`; the topic is named `<topic.prefix>.transaction`), by
            which lost changes are detected.
        max_offsets: The offsets that one execution reads of all partitions, in proportion to what
            each has, at least one; None is no limit. Topics of `heartbeats` are read last.
        every: How often the topics are polled, such as `every(minutes=5)`; by default at each
            evaluation of its trigger.
    """

    topic: str
    bootstrap: str = field(kw_only=True)
    options: Mapping[str, str] = field(default_factory=dict, kw_only=True, hash=False)
    heartbeats: str = field(default="", kw_only=True)
    shards: str = field(default="", kw_only=True)
    database: str = field(default="", kw_only=True)
    table: str = field(default="", kw_only=True)
    transactions: str = field(default="", kw_only=True)
    max_offsets: int | None = field(default=MAX_OFFSETS, kw_only=True)
    every: Schedule | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_shards("KafkaTopic", self.shards)
        _check_table_filter("KafkaTopic", self.database, self.table)
        _check_limit("KafkaTopic", "max_offsets", self.max_offsets)
        check_every("KafkaTopic", self.every)
        if not isinstance(self.bootstrap, str) or not self.bootstrap.strip():
            raise DeclarationError(
                "KafkaTopic",
                "bootstrap",
                f"{shown(self.bootstrap)} names no server, such as broker:9092; in YAML it is None "
                f"where the variable of {{{{ env.NAME }}}} is not set",
            )

    def __str__(self) -> str:
        return f"{self.topic} at {self.bootstrap}"


MessageSource = JsonLines | KafkaTopic


def shard_columns(shards: str) -> tuple[str, ...]:
    """The columns in names of topics, by the named groups of a regular expression that they
    match.
    """
    return tuple(re.compile(shards).groupindex)


def _check_limit(source: str, name: str, limit: object) -> None:
    if limit is not None and (type(limit) is not int or limit < 1):
        raise DeclarationError(
            source,
            name,
            f"{shown(limit)} is no limit of an execution; give 1 or more, or None to read all at "
            f"once",
        )


def check_every(source: str, every: object) -> None:
    """Refuse what is no schedule of polls."""
    if every is not None and not isinstance(every, Schedule):
        raise DeclarationError(
            source, "every", f"{shown(every)} is no schedule; write every(minutes=5)"
        )


def _check_table_filter(source: str, database: object, table: object) -> None:
    for name, glob in (("database", database), ("table", table)):
        if not isinstance(glob, str):
            raise DeclarationError(
                source, name, f"{shown(glob)} is no name, or glob of names, such as 'orders'"
            )


def _check_shards(source: str, shards: str) -> None:
    try:
        names = shard_columns(shards)
    except re.error as problem:
        raise DeclarationError(
            source, "shards", f"{shown(shards)} is no regular expression: {problem}"
        ) from problem
    if shards and not names:
        raise DeclarationError(
            source, "shards", rf"{shown(shards)} has no named group, such as (?P<shard>\w+)"
        )


_SECRET = re.compile(r"password|secret|jaas|token|\bkey\b", re.IGNORECASE)
_LOGIN = "org.apache.kafka.common.security"


def options_of(source: KafkaTopic, environment: Mapping[str, str]) -> dict[str, str]:
    """The options of a topic, with the variable of each `$NAME`.

    Raises:
        InvalidValueError: The environment lacks one of them.
    """
    return {
        name: resolved(value, environment, f"{source}, options[{name!r}]")
        for name, value in source.options.items()
    }


def librdkafka_settings(source: KafkaTopic, environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of a client from confluent-kafka."""
    return {"bootstrap.servers": source.bootstrap, **options_of(source, environment)}


def java_settings(source: KafkaTopic, environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of a client from Kafka's own library, which takes a login as one text, and
    certificates as a store.
    """
    options = options_of(source, environment)
    user, password = options.pop("sasl.username", None), options.pop("sasl.password", None)
    mechanism = options.pop("sasl.mechanisms", None) or options.get("sasl.mechanism")
    if mechanism:
        options["sasl.mechanism"] = mechanism
    if user is not None and password is not None:
        module = (
            "scram.ScramLoginModule"
            if (mechanism or "").startswith("SCRAM")
            else "plain.PlainLoginModule"
        )
        options["sasl.jaas.config"] = (
            f"{_LOGIN}.{module} required username={_quoted(user)} password={_quoted(password)};"
        )
    if authorities := options.pop("ssl.ca.location", None):
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authorities}
    return {"bootstrap.servers": source.bootstrap, **options}


def without_secrets(text: str, source: KafkaTopic, environment: Mapping[str, str]) -> str:
    """The message of a client without secrets of its options: values from the environment, and
    those of names such as password.
    """
    for name, value in options_of(source, environment).items():
        if value and (is_variable(source.options[name]) or _SECRET.search(name)):
            text = text.replace(value, "***")
    return text


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@dataclass(frozen=True)
class TableRows:
    """The rows of a Delta table to which others append, each with a message in a column of text or
    bytes.

    Attributes:
        table: The table, or its name; it is declared in the same lake.
        payload: The column, of STRING or BINARY.
        every: How often new rows are read, such as `every(minutes=5)`; by default at each
            evaluation of its trigger.
    """

    table: str | NamedTable
    payload: str = field(default="payload", kw_only=True)
    every: Schedule | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        name = (
            self.table
            if isinstance(self.table, str)
            else table_of_lake("TableRows", "table", self.table)
        )
        object.__setattr__(self, "table", checked_table_name(name, "TableRows"))
        if not isinstance(self.payload, str) or not self.payload.strip():
            raise DeclarationError(
                f"TableRows {self.table}",
                "payload",
                f"{shown(self.payload)} is not the name of a column",
            )
        check_every(f"TableRows {self.table}", self.every)

    @property
    def name(self) -> str:
        """The table's name."""
        return str(self.table)

    def __str__(self) -> str:
        return f"{self.payload} of table {self.name}"


AnySource = MessageSource | TableRows


@dataclass(frozen=True, kw_only=True)
class MessageTable(WrittenTable):
    """A table to which the messages of a source are appended, which is polled at the pace of the
    source.

    A source that is a table of the lake is its input, whose events wake it.
    """

    source: AnySource
    kind: ClassVar[str] = "a table of messages"
    unused: ClassVar[tuple[str, ...]] = (
        "partitioned_by",
        "format",
        "cluster_by",
        "readers",
        "expect",
        "watermark",
        "fresh_within",
        "columns",
    )

    @property
    def inputs(self) -> tuple[str, ...]:
        """The table that is its source; none where the source is outside of the lake."""
        return (self.source.name,) if isinstance(self.source, TableRows) else ()

    @property
    def trigger(self) -> SnapshotTrigger:
        """Without tables, where its source is outside of the lake; else as rows are appended to the
        table that is its source.
        """
        return SnapshotTrigger(self.inputs, self.source.every)
