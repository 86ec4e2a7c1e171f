"""What is outside of a lake: data sets and readers that only runs and other programs record."""

import hashlib
import urllib.error
import urllib.request
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from http.client import HTTPException
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import among, open_engine, reading, slices
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.dce.upgrade import check
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lineage import schema
from lakechime_dagster.lineage.columns import ACTIVE_MS, RECIPIENT_MS, Consumer, ConsumerKind
from lakechime_dagster.lineage.recording import MANY
from lakechime_dagster.settings import Settings
from lakechime_dagster.tables.lake import Lake

MOST = 5_000  # that are shown; the rest is counted
IN_USE_MS = RECIPIENT_MS  # what was not used for so long is not shown


@dataclass(frozen=True, kw_only=True)
class UsedConsumer:
    """A dashboard, a person or a job that read data sets, the last time at `last_ms`."""

    consumer: Consumer
    tables: tuple[str, ...]
    last_ms: int
    owners: tuple[str, ...] = ()
    link: str = ""

    def is_active(self, now_ms: int) -> bool:
        """Whether it read in the last day."""
        return now_ms - self.last_ms <= ACTIVE_MS


@dataclass(frozen=True, kw_only=True)
class ExternalTable:
    """A data set that the lake does not declare, and that a run recorded last at `last_ms`.

    `inputs` are what it is written from by external programs; `readers` are data sets that are
    written from it.
    """

    table: str
    last_ms: int
    inputs: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outside:
    """The consumers and data sets that were used last, those first; `more` of them are left out."""

    consumers: tuple[UsedConsumer, ...] = ()
    tables: tuple[ExternalTable, ...] = ()
    more: int = 0

    def __len__(self) -> int:
        return len(self.consumers) + len(self.tables)

    def digest(self, now_ms: int) -> str:
        """Another one when something else is to be shown: not for each read, but for one that
        begins, ends, or is active no more.
        """
        consumers = sorted(
            repr((replace(one, last_ms=0), one.is_active(now_ms))) for one in self.consumers
        )
        tables = sorted(repr(replace(one, last_ms=0)) for one in self.tables)
        return hashlib.sha256(
            "\0".join([*consumers, *tables, str(self.more)]).encode(errors="surrogatepass")
        ).hexdigest()[:32]


def most_lately(
    consumers: Iterable[UsedConsumer], tables: Iterable[ExternalTable], total: int, most: int = MOST
) -> Outside:
    """The `most` of them that were used last; there are `total` in all."""
    ordered: list[UsedConsumer | ExternalTable] = sorted(
        [*consumers, *tables], key=lambda one: -one.last_ms
    )
    shown = ordered[:most]
    return Outside(
        consumers=tuple(one for one in shown if isinstance(one, UsedConsumer)),
        tables=tuple(one for one in shown if isinstance(one, ExternalTable)),
        more=max(0, total - len(shown)),
    )


LOCATION = "outside"
SECONDS = 60  # that a reload may take
MUTATION = """
mutation Reload($location: String!) {
  reloadRepositoryLocation(repositoryLocationName: $location) {
    __typename
    ... on WorkspaceLocationEntry {
      locationOrLoadError { __typename ... on PythonError { message } }
    }
    ... on RepositoryLocationNotFound { message }
    ... on ReloadNotSupported { message }
    ... on UnauthorizedError { message }
    ... on PythonError { message }
  }
}
"""


class NotReloadedError(LakeChimeError):
    """The webserver has not reloaded the location."""


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What is outside, as the store has it at a moment of its own clock."""

    outside: Outside
    now_ms: int

    @property
    def digest(self) -> str:
        return self.outside.digest(self.now_ms)

    @property
    def sentence(self) -> str:
        """What is shown, and how much is not."""
        consumers, tables, more = (
            len(self.outside.consumers),
            len(self.outside.tables),
            self.outside.more,
        )
        said = (
            f"{consumers:,} that read the lake and {tables:,} data sets that it does not declare "
            f"are shown"
        )
        return said + (f", those that were used last; {more:,} more are not" if more else "")


def look_outside(settings: Settings, lake: Lake, most: int = MOST) -> Looked:
    """What is outside now. The store is neither made nor upgraded by it.

    Raises:
        LakeChimeError: there is no store, none that this version can read, or it cannot be reached.
    """
    engine = open_engine(settings.store_url)
    try:
        check(engine)
        now = DCEStore(engine).now()
        names = {table.name for table in lake.tables} | {group.name for group in lake.groups}
        return Looked(
            outside=outside_of(engine, names, settings.deployment, now - IN_USE_MS, most),
            now_ms=now,
        )
    finally:
        engine.dispose()


def reload_outside(webserver_url: str, seconds: float = SECONDS) -> None:
    """Have the webserver reload the location.

    Raises:
        NotReloadedError: saying why it has not.
    """
    body = orjson.dumps({"query": MUTATION, "variables": {"location": LOCATION}})
    request = urllib.request.Request(
        f"{webserver_url.rstrip('/')}/graphql", body, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            problem = _problem_of(orjson.loads(answer.read()))
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise NotReloadedError(
            f"Dagster's webserver at {webserver_url} does not answer: {reason}; set "
            f"LAKECHIME_WEBSERVER_URL"
        ) from None
    if problem:
        raise NotReloadedError(
            f"Dagster's webserver has not reloaded the code location {LOCATION}: {problem}"
        )


def _problem_of(answer: Any) -> str:
    """Why a reload has failed, by the answer; empty if it has not."""
    try:
        answered = answer["data"]["reloadRepositoryLocation"]
        if answered["__typename"] == "RepositoryLocationNotFound":
            return "it is not in its workspace; docs/lineage.md says what to add"
        if answered["__typename"] != "WorkspaceLocationEntry":
            return str(answered.get("message") or answered["__typename"])
        entry = answered["locationOrLoadError"] or {}
        return _first_line(entry["message"]) if entry.get("__typename") == "PythonError" else ""
    except (KeyError, TypeError):
        return f"it answered {str(answer)[:200]}"


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")


READ, NODE = schema.read.c, schema.node.c


INPUT, WRITER = schema.statement_input.c, schema.writer.c


DATASET = sa.func.coalesce(NODE.dataset_id, NODE.node_id)


def outside_of(
    engine: Engine, lake: Collection[str], deployment: str, since_ms: int, most: int = MOST
) -> Outside:
    """What is outside of the tables of a lake. Data sets that runs of ours write are not: they are
    assets of some code location.
    """
    with reading(engine) as connection:
        consumers, readers = _consumers(connection, since_ms, most)
        tables, others = _tables(connection, set(lake), deployment, since_ms, most)
        return most_lately(consumers, tables, readers + others, most)


def _consumers(connection: Connection, since_ms: int, most: int) -> tuple[list[UsedConsumer], int]:
    """Who read since then, the last one first, and how many did."""
    last = sa.func.max(READ.last_ms).label("last_ms")
    used = (
        sa.select(READ.consumer_id, last)
        .where(READ.last_ms >= since_ms)
        .group_by(READ.consumer_id)
        .subquery()
    )
    query = (
        sa.select(schema.consumer, used.c.last_ms)
        .join(used, used.c.consumer_id == schema.consumer.c.consumer_id)
        .order_by(used.c.last_ms.desc(), used.c.consumer_id)
    )
    every = connection.execute(query).all()
    rows = every[:most]
    of = (
        sa.select(READ.consumer_id, DATASET)
        .join_from(schema.read, schema.node, NODE.node_id == READ.node_id)
        .distinct()
    )
    pairs = _pairs(
        connection,
        of.where(READ.last_ms >= since_ms),
        READ.consumer_id,
        [row.consumer_id for row in rows],
    )
    return [
        UsedConsumer(
            consumer=Consumer(ConsumerKind(row.kind), row.namespace, row.name),
            tables=pairs.get(row.consumer_id, ()),
            last_ms=row.last_ms,
            owners=tuple(row.owners),
            link=row.link,
        )
        for row in rows
    ], len(every)


def _tables(
    connection: Connection, lake: set[str], deployment: str, since_ms: int, most: int
) -> tuple[list[ExternalTable], int]:
    """The data sets with a record since then that they are written externally, or read, and how
    many there are.
    """
    ours = sa.or_(WRITER.namespace == deployment, WRITER.consumer.is_not(None))
    holds = WRITER.at_ms >= since_ms
    written = sa.select(WRITER.target_id.label("node_id"), WRITER.at_ms.label("last_ms"))
    given = sa.select(INPUT.source_id.label("node_id"), WRITER.at_ms.label("last_ms")).join_from(
        schema.writer, schema.statement_input, INPUT.statement_id == WRITER.statement_id
    )
    both = sa.union_all(written.where(holds, ~ours), given.where(holds)).subquery()
    by_us = sa.select(WRITER.target_id).where(ours)
    used = sa.select(both.c.node_id, sa.func.max(both.c.last_ms).label("last_ms")).where(
        both.c.node_id.not_in(by_us)
    )
    used = used.group_by(both.c.node_id).subquery()
    query = sa.select(NODE.node_id, NODE.name, used.c.last_ms).join_from(
        used, schema.node, NODE.node_id == used.c.node_id
    )
    every = [
        row
        for row in connection.execute(query.order_by(used.c.last_ms.desc(), used.c.node_id))
        if row.name not in lake
    ]
    return _described(connection, every[:most], sa.and_(holds, ~ours), holds), len(every)


def _described(
    connection: Connection,
    found: Sequence[sa.Row[Any]],
    external: sa.ColumnElement[bool],
    holds: sa.ColumnElement[bool],
) -> list[ExternalTable]:
    """Data sets with what they are written from externally, what is written from them, and whose
    they are.
    """
    numbers = [row.node_id for row in found]
    into = sa.select(WRITER.target_id, INPUT.source_id).join_from(
        schema.writer, schema.statement_input, INPUT.statement_id == WRITER.statement_id
    )
    inputs = _pairs(connection, into.where(external), WRITER.target_id, numbers)
    out = sa.select(INPUT.source_id, WRITER.target_id).join_from(
        schema.writer, schema.statement_input, INPUT.statement_id == WRITER.statement_id
    )
    readers = _pairs(connection, out.where(holds), INPUT.source_id, numbers)
    owners: dict[int, list[str]] = {}
    for some in slices(numbers, MANY):
        for row in connection.execute(
            sa.select(WRITER.target_id, WRITER.owners).where(
                among(connection, WRITER.target_id, some)
            )
        ):
            owners.setdefault(row.target_id, []).extend(row.owners)
    return [
        ExternalTable(
            table=row.name,
            last_ms=row.last_ms,
            inputs=inputs.get(row.node_id, ()),
            readers=readers.get(row.node_id, ()),
            owners=tuple(sorted(set(owners.get(row.node_id, ())))),
        )
        for row in found
    ]


def _pairs(
    connection: Connection, query: sa.Select[Any], number: sa.Column[Any], numbers: Iterable[int]
) -> dict[int, tuple[str, ...]]:
    """By a number the names of the data sets next to it; the query gives a number and that of a
    data set.
    """
    pairs: dict[int, set[int]] = {}
    for some in slices(list(numbers), MANY):
        for one, dataset in connection.execute(query.where(among(connection, number, some))):
            pairs.setdefault(one, set()).add(dataset)
    names: dict[int, str] = {}
    for some in slices(
        sorted({dataset for several in pairs.values() for dataset in several}), MANY
    ):
        names |= dict(
            connection.execute(
                sa.select(NODE.node_id, NODE.name).where(among(connection, NODE.node_id, some))
            )
            .tuples()
            .all()
        )
    return {
        one: tuple(sorted(names[dataset] for dataset in several)) for one, several in pairs.items()
    }
