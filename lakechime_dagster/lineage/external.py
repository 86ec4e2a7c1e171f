"""What is outside of a lake: data sets and readers that only runs and other programs record."""

import hashlib
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from http.client import HTTPException
from itertools import groupby
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import check_version, open_engine, reading
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lineage import schema
from lakechime_dagster.lineage.columns import ACTIVE_MS, RECIPIENT_MS, Consumer, ConsumerKind
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
        check_version(engine)
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


def outside_of(
    engine: Engine, lake: Collection[str], deployment: str, since_ms: int, most: int = MOST
) -> Outside:
    """What is outside of the tables of a lake. Data sets that runs of ours write are not: they are
    assets of some code location.
    """
    with reading(engine) as connection:
        found: list[UsedConsumer | ExternalTable] = [
            *_consumers(connection, since_ms),
            *_tables(connection, lake, deployment, since_ms),
        ]
    shown = sorted(found, key=lambda one: -one.last_ms)[:most]
    return Outside(
        consumers=tuple(one for one in shown if isinstance(one, UsedConsumer)),
        tables=tuple(one for one in shown if isinstance(one, ExternalTable)),
        more=len(found) - len(shown),
    )


def _consumers(connection: Connection, since_ms: int) -> list[UsedConsumer]:
    """Who read since then, with the data sets that they read."""
    read, node, dataset = schema.read.c, schema.node.c, schema.node.alias("dataset")
    last = sa.func.max(read.last_ms).label("last_ms")
    number = sa.func.coalesce(node.dataset_id, node.node_id).label("dataset_id")
    used = (
        sa.select(read.consumer_id, number, last)
        .join_from(schema.read, schema.node, node.node_id == read.node_id)
        .where(read.last_ms >= since_ms)
        .group_by(read.consumer_id, number)
        .subquery()
    )
    query = (
        sa.select(schema.consumer, dataset.c.name.label("dataset"), used.c.last_ms)
        .join(used, used.c.consumer_id == schema.consumer.c.consumer_id)
        .join(dataset, dataset.c.node_id == used.c.dataset_id)
        .order_by(schema.consumer.c.consumer_id)
    )
    found: list[UsedConsumer] = []
    for _, several in groupby(connection.execute(query), key=lambda row: row.consumer_id):
        rows = list(several)
        found.append(
            UsedConsumer(
                consumer=Consumer(ConsumerKind(rows[0].kind), rows[0].namespace, rows[0].name),
                tables=tuple(sorted(row.dataset for row in rows)),
                last_ms=max(row.last_ms for row in rows),
                owners=tuple(rows[0].owners),
                link=rows[0].link,
            )
        )
    return found


def _tables(
    connection: Connection, lake: Collection[str], deployment: str, since_ms: int
) -> list[ExternalTable]:
    """The data sets with a record since then that they are written externally, or read, with what
    they are written from externally, what is written from them, and whose they are.
    """
    writer, given = schema.writer, schema.statement_input
    target, source = schema.node.alias("target"), schema.node.alias("source")
    ours = sa.or_(writer.c.namespace == deployment, writer.c.consumer.is_not(None))
    query = (
        sa.select(target.c.name, source.c.name, writer.c.at_ms, writer.c.owners, ours)
        .join_from(writer, target, target.c.node_id == writer.c.target_id)
        .outerjoin(given, given.c.statement_id == writer.c.statement_id)
        .outerjoin(source, source.c.node_id == given.c.source_id)
    )
    by_us, last = set(lake), dict[str, int]()
    inputs, readers, owners = (defaultdict[str, set[str]](set) for _ in range(3))
    for into, out_of, at_ms, whose, is_ours in connection.execute(query).tuples():
        owners[into].update(whose)
        if is_ours:
            by_us.add(into)
        if at_ms < since_ms:
            continue
        if not is_ours:
            last[into] = max(at_ms, last.get(into, at_ms))
        if out_of is not None:
            last[out_of] = max(at_ms, last.get(out_of, at_ms))
            readers[out_of].add(into)
        if out_of is not None and not is_ours:
            inputs[into].add(out_of)
    return [
        ExternalTable(
            table=name,
            last_ms=at_ms,
            inputs=tuple(sorted(inputs[name])),
            readers=tuple(sorted(readers[name])),
            owners=tuple(sorted(owners[name])),
        )
        for name, at_ms in sorted(last.items())
        if name not in by_us
    ]
