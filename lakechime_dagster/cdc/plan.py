"""Checks a CDC declaration against its source before the first run."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.database import check_log, column_types, connected, open_transactions, tells_open_transactions
from lakechime_dagster.cdc.findings import TRANSACTIONS, Finding, Sample, Weight, findings, untaken, without_transactions
from lakechime_dagster.cdc.readers import format_of
from lakechime_dagster.cdc.record import Record
from lakechime_dagster.cdc.row_messages import check_types, check_unsigned
from lakechime_dagster.cdc.service import Followed
from lakechime_dagster.cdc.spark_bronze import message_of, record_of
from lakechime_dagster.errors import LakeChimeError, SourceDeniedError
from lakechime_dagster.runtime.sources import opened
from lakechime_dagster.settings import in_project
from lakechime_dagster.sources.spark import Slice, lines
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.tables.sources import Feed, JsonLines, KafkaTopic
from lakechime_dagster.triggers.consumers import spans_between
from lakechime_dagster.triggers.subscription import Subscription

MESSAGES = 200  # that are looked at
BYTES = 8 << 20  # of the end of a file, in which they are


@dataclass(frozen=True)
class Part:
    """A file, or a partition of a topic: up to where it can be read, and how much of that was not."""

    name: str
    end: int
    unread: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a look at a table finds before it runs, or where it does not go on.

    Attributes:
        parts: What the feed holds.
        rest: What is there and cannot be read yet.
        sample: The newest messages, of the bronze table where that has any, else of the feed.
        is_of_feed: They are of the feed.
        findings: What stands in the way, the gravest first.
    """

    parts: tuple[Part, ...]
    rest: str
    sample: Sample
    is_of_feed: bool
    findings: tuple[Finding, ...]


def plan_of(followed: Followed, subscription: Subscription, url: str | None = None, source_table: str | None = None) -> Plan:
    """Look at the feed, at some messages, and at the database where there is a URL.

    Args:
        followed: The table.
        subscription: That of its bronze table.
        url: Of the database.
        source_table: The table there, as `schema.table`; by default the one that messages tell.
    """
    found: list[Finding] = []
    parts, rest = _feed(followed, subscription, found)
    bronze = followed.table.bronze
    records, is_of_feed = _newest(followed, parts, found)
    messages = format_of(bronze)
    sample = Sample(bronze.envelope, messages.message_keys)
    found += _schema_changes(bronze.feed, parts)
    found += _no_topic_of_transactions(bronze.feed, parts)
    try:
        sample = Sample.read(bronze.envelope, messages.message_keys, records, messages.reader())
    except ValueError as problem:  # of what is declared; a message that cannot be read is none
        found.append(Finding(Weight.ERROR, "types", str(problem), f"`lakechime cdc plan --types {followed.table.name}` writes types={{…}}"))
    found += untaken(sample, followed.table.names, followed.table.merge.takes)
    found += without_transactions(sample) if bronze.feed.transactions else []
    found += findings(sample) if records else [] if found else [_nothing_yet()]
    if url is not None:
        there = _database(url, source_table or _told_table(sample), bronze.schema.types or {}, sample)
        has_hours = followed.table.merge.max_transaction is not None
        found += there + (_open_transactions(url) if has_hours and all(one.about != "database" for one in there) else [])
    found.sort(key=lambda one: list(Weight).index(one.weight))
    return Plan(parts=tuple(parts), rest=rest, sample=sample, is_of_feed=is_of_feed, findings=tuple(found))


def _feed(followed: Followed, subscription: Subscription, found: list[Finding]) -> tuple[list[Part], str]:
    """What the feed holds beyond the place of its consumer; what hinders is found."""
    consumer = followed.consumer(followed.table.bronze.name)
    place = consumer.place.feed if consumer is not None else None
    try:
        look = opened(subscription).look(place)
    except LakeChimeError as error:
        found.append(Finding(Weight.ERROR, "feed", str(error), "see that it is there, and reached from here"))
        return [], ""
    found += [
        Finding(Weight.ERROR, "feed", problem, f"lakechime trigger resume {subscription.name} --reason …") for problem in look.problems
    ]
    unread = {name: stop - start for name, (start, stop) in spans_between(place, look.end)}
    ends = {name: stop for name, (_, stop) in spans_between(None, look.end)}
    return [Part(name, end, unread.get(name, 0)) for name, end in ends.items()], look.rest


def _schema_changes(feed: Feed, parts: Sequence[Part]) -> list[Finding]:
    """That no topic is there which tells schema changes, where the declaration names one."""
    if not feed.ddl or not isinstance(feed, KafkaTopic) or _is_there(feed.ddl, parts):
        return []
    remedy = "set `include.schema.changes=true` in the connector, whose topic is named as its `topic.prefix`, and let it take a snapshot"
    return [Finding(Weight.ERROR, "schema changes", f"no topic matches ddl={feed.ddl}: messages without a schema cannot be read", remedy)]


def _no_topic_of_transactions(feed: Feed, parts: Sequence[Part]) -> list[Finding]:
    """That no topic is there which tells transactions, where the declaration names one."""
    if not isinstance(feed, KafkaTopic) or not parts or not feed.transactions or _is_there(feed.transactions, parts):
        return []
    problem = f"no topic with a message matches transactions={feed.transactions}: a change that is lost is not known by them"
    return [Finding(Weight.WARNING, "transactions", problem, f"{TRANSACTIONS}, whose topic is <topic.prefix>.transaction")]


def _is_there(glob: str, parts: Sequence[Part]) -> bool:
    return any(fnmatchcase(part.name.rpartition("[")[0], glob) for part in parts)


def _newest(followed: Followed, parts: Sequence[Part], found: list[Finding]) -> tuple[list[Record], bool]:
    """The newest messages, and whether they are of the feed; what hinders is found."""
    try:
        records = followed.sample(MESSAGES)
        return (records, False) if records else (_of_feed(followed.table.bronze.feed, parts), True)
    except (LakeChimeError, OSError) as error:
        found.append(Finding(Weight.ERROR, "messages", f"they cannot be looked at: {error}", "see that feed and bronze table can be read"))
        return [], True


def _of_feed(feed: Feed, parts: Sequence[Part]) -> list[Record]:
    if isinstance(feed, JsonLines):
        return list(islice(_of_files(feed, parts), MESSAGES))
    from lakechime_dagster.cdc.kafka import newest_messages

    return newest_messages(feed, os.environ, MESSAGES) if parts else []


def _of_files(feed: JsonLines, parts: Iterable[Part]) -> Iterator[Record]:
    """The last messages of the files, those of the last name first."""
    folder, told = in_project(feed.folder), record_of if feed.records else message_of
    for part in sorted(parts, key=lambda one: one.name, reverse=True):
        last = deque(lines(folder, Slice(part.name, max(0, part.end - BYTES), part.end)), maxlen=MESSAGES)
        yield from (told(part.name, at, line, None).record for at, line in last)


def _nothing_yet() -> Finding:
    problem = "there is no message to look at, so that nothing is known of how the connector is set up"
    return Finding(Weight.NOTE, "messages", problem, "look again when there are some")


def _told_table(sample: Sample) -> str | None:
    """The table of the database that messages tell, where it is one: the last two parts of their source."""
    names = {".".join(source.split(".")[-2:]) for source in sample.sources}
    return names.pop() if len(names) == 1 else None


def _database(url: str, table: str | None, types: Mapping[str, str], sample: Sample) -> list[Finding]:
    schema, _, name = (table or "").rpartition(".")
    if not schema:
        return [Finding(Weight.ERROR, "database", "which table it is there is not known", "name it: --source-table schema.table")]
    try:
        found = check_log(url, schema, name)
        if not any(one.about == "table" for one in found):
            with connected(url) as (connection, dialect):
                columns = column_types(connection, schema, name)
                if types:
                    found += check_types(dialect, columns, types)
                elif isinstance(sample.envelope, Debezium) and dialect is Dialect.MYSQL:
                    found += check_unsigned(columns, sample.columns)
        return found
    except LakeChimeError as error:
        return [Finding(Weight.ERROR, "database", str(error), "see that it is there, and reached from here by this user")]


def _open_transactions(url: str) -> list[Finding]:
    """What hinders that hours are complete by what the database says is open in it."""
    try:
        if tells_open_transactions(url):
            open_transactions(url, "")
    except SourceDeniedError as error:
        return [Finding(Weight.WARNING, "open transactions", f"{error}, so that hours are complete by max_transaction", error.remedy)]
    except LakeChimeError as error:
        problem = f"{error}: hours are complete by max_transaction"
        return [Finding(Weight.NOTE, "open transactions", problem, "see that it is as long as a transaction may last")]
    return []
