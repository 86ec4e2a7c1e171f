"""Records lineage in the store: data sets, columns, producers, readers, and what each wrote or read."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection, Engine
from sqlalchemy.dialects import postgresql, sqlite

from lakechime_dagster.dce.engine import TransactionId, among, insert_if_absent, now_ms, slices, writing
from lakechime_dagster.dce.partitions import checked_milliseconds, checked_text, storable
from lakechime_dagster.lineage import schema
from lakechime_dagster.lineage.columns import (
    ColumnLineage,
    ColumnRef,
    Consumer,
    LineageRecord,
    Names,
    Producer,
    Read,
    Source,
    Statement,
    joined,
    respelled,
)
from lakechime_dagster.lineage.facts import Fact, Facts, ToldRun, data_sets, reads_of, records_of
from lakechime_dagster.lineage.graph import edges_of, parts_of

MANY = 500  # keys that one statement asks for
Parts = Mapping[str, int]  # how each data set takes part
Edges = Collection[tuple[ColumnRef, ColumnRef, int]]


def digest(*parts: str) -> bytes:
    """A key of several texts."""
    return blake2b("\0".join(parts).encode(), digest_size=16).digest()


def key_of(ref: ColumnRef) -> bytes:
    """The key of a column, or of a data set."""
    return digest(ref.table) if ref.column is None else digest(ref.table, ref.column)


def key_of_told(statement: Statement) -> bytes:
    """The key of what a statement tells; the order of its columns makes no difference."""
    columns = sorted(statement.columns, key=lambda column: column.column)
    said: list[Any] = [
        statement.target,
        statement.replaces,
        statement.inputs,
        statement.unknown,
        _plain_sources(statement.indirect),
        [[column.column, column.opaque, _plain_sources(column.sources)] for column in columns],
    ]
    said += [foreign] if (foreign := _foreign(statement)) else []
    return blake2b(orjson.dumps(said), digest_size=16).digest()


def storable_statement(statement: Statement) -> Statement:
    """The statement with a replacement character in its names and reasons for each one that not every store can hold."""
    said = " ".join(_texts(statement))
    if storable(said) == said:
        return statement
    columns = [
        ColumnLineage(
            column=storable(one.column),
            sources=_storable_sources(one.sources),
            opaque=_storable_texts(one.opaque),
            foreign=_storable_texts(one.foreign),
        )
        for one in statement.columns
    ]
    return Statement(
        target=storable(statement.target),
        columns=joined(columns),
        indirect=_storable_sources(statement.indirect),
        inputs=_storable_texts(statement.inputs),
        replaces=statement.replaces,
        unknown=_storable_texts(statement.unknown),
        foreign=_storable_texts(statement.foreign),
    )


def _texts(statement: Statement) -> Iterator[str]:
    """All names and reasons in a statement."""
    yield from (statement.target, *statement.inputs, *statement.not_known)
    for column in statement.columns:
        yield from (column.column, *column.not_known)
    for source in statement.sources:
        yield from (source.ref.table, source.ref.column or "")


def _storable_texts(several: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(storable, several))


def _storable_sources(sources: Iterable[Source]) -> tuple[Source, ...]:
    return tuple(
        Source(ColumnRef(storable(one.ref.table), one.ref.column and storable(one.ref.column)), one.kind, one.is_masking) for one in sources
    )


def known_nodes(connection: Connection, refs: Iterable[ColumnRef]) -> dict[ColumnRef, int]:
    """The numbers of those data sets and columns that were met before."""
    keys = {key_of(ref): ref for ref in refs}
    return {keys[key]: number for key, number in _numbers_of(connection, schema.node, keys).items()}


def ensured_nodes(connection: Connection, refs: Iterable[ColumnRef]) -> dict[ColumnRef, int]:
    """The numbers of data sets and columns."""
    wanted = set(refs)
    datasets = {name: ColumnRef(name) for name in {ref.table for ref in wanted}}
    keys = {ref: key_of(ref) for ref in wanted.union(datasets.values())}
    found = _ensured(connection, schema.node, {keys[ref]: {"name": name} for name, ref in datasets.items()})
    columns = {
        key: {"name": ref.column, "dataset_id": found[keys[datasets[ref.table]]]} for ref, key in keys.items() if ref.column is not None
    }
    found |= _ensured(connection, schema.node, columns)
    return {ref: found[key] for ref, key in keys.items()}


def ensured_writers(connection: Connection, pairs: Mapping[tuple[Producer, str], int]) -> dict[tuple[Producer, str], sa.Row[Any]]:
    """The rows of producers at their targets, which come with theirs; nobody else records for them until the transaction ends."""
    keys = {digest(pair[0].namespace, pair[0].job, pair[1]): pair for pair in pairs}
    rows = [
        {"key": key, "namespace": pair[0].namespace, "job": pair[0].job, "target_id": pairs[pair], "at_ms": -1, "run_key": b""}
        for key, pair in sorted(keys.items())
    ]
    found: dict[tuple[Producer, str], sa.Row[Any]] = {}
    row = schema.writer.c
    for some in slices(rows, MANY):
        connection.execute(insert_if_absent(connection, schema.writer), list(some))
    for some in slices(sorted(keys), MANY):
        held = sa.select(schema.writer).where(among(connection, row.key, some)).order_by(row.key).with_for_update()
        found |= {keys[bytes(one.key)]: one for one in connection.execute(held).all()}
    return found


def ensured_told(connection: Connection, statements: Mapping[bytes, Statement]) -> dict[bytes, int]:
    """The numbers of what statements tell, by their keys; what is told for the first time is kept with its edges."""
    known = _numbers_of(connection, schema.told, statements)
    new = {key: statement for key, statement in statements.items() if key not in known}
    if not new:
        return known
    drawn = {key: (parts_of(statement), edges_of(statement)) for key, statement in new.items()}
    refs = {ref for _, edges in drawn.values() for source, target, _ in edges for ref in (source, target)}
    refs |= {ColumnRef(name) for key, (parts, _) in drawn.items() for name in (new[key].target, *parts)}
    refs |= {ColumnRef(one.target, column.column) for one in new.values() for column in one.columns}
    nodes = ensured_nodes(connection, refs)
    values = [_told_row(key, statement, nodes[ColumnRef(statement.target)]) for key, statement in sorted(new.items())]
    made = insert_if_absent(connection, schema.told).returning(schema.told.c.told_id, schema.told.c.key)
    ours = {bytes(key): number for number, key in connection.execute(made, values)}  # what others made meanwhile is not among them
    _keep_edges(connection, {number: drawn[key] for key, number in ours.items()}, nodes)
    return known | ours | _numbers_of(connection, schema.told, new.keys() - ours.keys())


def _told_row(key: bytes, statement: Statement, target: int) -> dict[str, Any]:
    return {
        "key": key,
        "target_id": target,
        "replaces": statement.replaces,
        "columns": sorted(column.column for column in statement.columns),
        "opaque": {one.column: one.opaque for one in statement.columns if one.opaque},
        "unknown": statement.unknown,
        "foreign_code": _foreign(statement),
    }


def _keep_edges(connection: Connection, drawn: Mapping[int, tuple[Parts, Edges]], nodes: Mapping[ColumnRef, int]) -> None:
    inputs = [
        {"told_id": number, "source_id": nodes[ColumnRef(name)], "parts": int(part)}
        for number, (parts, _) in drawn.items()
        for name, part in parts.items()
    ]
    edges = [
        {"told_id": number, "source_id": nodes[source], "target_id": nodes[target], "kind": kind}
        for number, (_, several) in drawn.items()
        for source, target, kind in several
    ]
    for table, rows in ((schema.told_input, inputs), (schema.told_edge, edges)):
        if rows:
            connection.execute(sa.insert(table), rows)


def _ensured(connection: Connection, table: sa.Table, values: Mapping[bytes, Mapping[str, Any]]) -> dict[bytes, int]:
    """The numbers of rows by their keys; those that are missing are made, in the order of their keys."""
    found = _numbers_of(connection, table, values)
    missing = [{"dataset_id": None, **values[key], "key": key} for key in sorted(values) if key not in found]
    if missing:
        names = {column.name for column in table.columns}
        rows = [{name: value for name, value in row.items() if name in names} for row in missing]
        connection.execute(insert_if_absent(connection, table), rows)
        found |= _numbers_of(connection, table, [row["key"] for row in rows])
    return found


def _numbers_of(connection: Connection, table: sa.Table, keys: Collection[bytes]) -> dict[bytes, int]:
    (number,) = table.primary_key.columns
    found: dict[bytes, int] = {}
    for some in slices(sorted(keys), MANY):
        query = sa.select(table.c.key, number).where(among(connection, table.c.key, some))
        found |= {bytes(key): value for key, value in connection.execute(query)}
    return found


def _foreign(statement: Statement) -> list[list[Any]]:
    """Code that nobody looks into, by the column that comes through it; by null what has a say in which rows there are."""
    whole = [[None, statement.foreign]] if statement.foreign else []
    return [*whole, *([one.column, one.foreign] for one in sorted(statement.columns, key=lambda one: one.column) if one.foreign)]


def _plain_sources(sources: Iterable[Any]) -> list[list[Any]]:
    return [[source.ref.table, source.ref.column, source.kind.value, source.is_masking] for source in sources]


Spelled = dict[str, dict[str, set[str]]]  # names of columns by their data set, and by themselves in one letter case


def spelled(connection: Connection, records: Sequence[LineageRecord]) -> list[LineageRecord]:
    """Records whose columns go by the names by which they are known; what a statement writes is met before what it reads."""
    several = [_refs(one.statement) for one in records]
    names = _names(connection, several)
    return [
        record if not (new := _new_names(refs, names)) else record.with_statement(respelled(record.statement, new))
        for record, refs in zip(records, several, strict=True)
    ]


def spelled_refs(connection: Connection, several: Sequence[Sequence[ColumnRef]]) -> list[tuple[ColumnRef, ...]]:
    """The same of columns that are read, each list by one reader."""
    names = _names(connection, several)
    news = [_new_names(refs, names) for refs in several]
    return [tuple(new.get(ref, ref) for ref in refs) for refs, new in zip(several, news, strict=True)]


def _refs(statement: Statement) -> list[ColumnRef]:
    refs = [ColumnRef(statement.target, one.column) for one in statement.columns]
    refs += [source.ref for one in statement.columns for source in one.sources]
    return list(dict.fromkeys([*refs, *(source.ref for source in statement.indirect)]))


def _names(connection: Connection, several: Iterable[Sequence[ColumnRef]]) -> Spelled:
    """The names that are known of the data sets of columns that are met for the first time, and then theirs."""
    columns = {ref: None for refs in several for ref in refs if ref.column is not None}
    there = known_nodes(connection, columns)
    new = [ref for ref in columns if ref not in there]
    names: Spelled = {}
    for table, name in _known_columns(connection, {ref.table for ref in new}):
        names.setdefault(table, {}).setdefault(name.casefold(), set()).add(name)
    for ref in new:
        _ = names.setdefault(ref.table, {}).setdefault((ref.column or "").casefold(), {ref.column or ""})
    return names


def _known_columns(connection: Connection, tables: Iterable[str]) -> Iterable[tuple[str, str]]:
    datasets = known_nodes(connection, (ColumnRef(name) for name in tables))
    by_number = {number: ref.table for ref, number in datasets.items()}
    row = schema.node.c
    for some in slices(sorted(by_number), MANY):
        query = sa.select(row.dataset_id, row.name).where(among(connection, row.dataset_id, some))
        for dataset, name in connection.execute(query):
            yield by_number[dataset], name


def _new_names(refs: Sequence[ColumnRef], names: Spelled) -> Mapping[ColumnRef, ColumnRef]:
    found: dict[ColumnRef, ColumnRef] = {}
    own = set(refs)
    for ref in refs:
        known = names.get(ref.table, {}).get((ref.column or "").casefold(), set())
        if ref.column is None or ref.column in known or len(known) != 1:
            continue
        meant = ColumnRef(ref.table, next(iter(known)))
        if meant not in own:
            found[ref] = meant
    return found


@dataclass(frozen=True)
class SqlLineage:
    """What runs told of their writes, in a store; of all deployments."""

    engine: Engine

    def record(self, record: LineageRecord) -> bool:
        """Keep a record; False if it was there."""
        return self.record_all([record]) == 1

    def record_all(self, records: Iterable[LineageRecord]) -> int:
        """Keep several records, all of them or none; how many were new."""
        with writing(self.engine) as connection:
            return record_all_on(connection, tuple(records))


def told_on(connection: Connection, producer: Producer, target: str) -> int | None:
    """The number of what the newest run of a producer told of a target; None before any did."""
    return connection.execute(sa.select(schema.writer.c.told_id).where(schema.writer.c.key == writer_key(producer, target))).scalar()


def writer_key(producer: Producer, target: str) -> bytes:
    """The key of a producer at one of its targets."""
    return digest(producer.namespace, producer.job, storable(target))


def record_all_on(connection: Connection, records: Sequence[LineageRecord]) -> int:
    """Keep records in an open transaction that writes; how many changed what is known.

    Of each producer and target the newest run holds. What comes late or again changes nothing, unless the newest run tells more.
    Call it once in a transaction, so that two transactions that record for the same producers wait for each other and no more.

    Raises:
        InvalidValueError: for a producer, run or time that no store can hold; nothing is kept then.
    """
    records = spelled(connection, [_storable(record) for record in records])
    newest = {(one.producer, one.target): one for one in sorted(records, key=_moment)}
    targets = ensured_nodes(connection, (ColumnRef(target) for _, target in newest))
    writers = ensured_writers(connection, {pair: targets[ColumnRef(pair[1])] for pair in newest})
    newest = {pair: one for pair, one in newest.items() if _moment(one) >= (writers[pair].at_ms, bytes(writers[pair].run_key))}
    keys = {pair: key_of_told(one.statement) for pair, one in newest.items()}
    told = ensured_told(connection, {keys[pair]: one.statement for pair, one in newest.items()})
    change = change_of(connection)
    rows = [_written(writers[pair], one, told[keys[pair]], change) for pair, one in newest.items()]
    changed = [row for row in rows if row is not None]
    if changed:
        names = {name: sa.bindparam(f"new_{name}") for name in changed[0] if name != "of"}
        connection.execute(
            sa.update(schema.writer).where(schema.writer.c.writer_id == sa.bindparam("new_of")).values(names),
            [{f"new_{name}": value for name, value in row.items()} for row in changed],
        )
    return len(changed)


def _moment(record: LineageRecord) -> tuple[int, bytes]:
    """When a run succeeded, and the key of the run: their order is total."""
    return record.at_ms, digest(record.run_id)


def _written(before: sa.Row[Any], record: LineageRecord, told: int, change: int) -> dict[str, Any] | None:
    """What a writer's row becomes by its newest run; None where that is what it is."""
    if (before.at_ms, bytes(before.run_key), before.told_id) == (*_moment(record), told):
        return None
    is_other_code = None not in (before.code, record.code) and before.code != record.code
    return {
        "of": before.writer_id,
        "told_id": told,
        "first_ms": record.at_ms if before.first_ms is None else before.first_ms,
        "at_ms": record.at_ms,
        "run_key": digest(record.run_id),
        "consumer": record.consumer,
        "code": record.code or before.code,
        "code_version": record.version if is_other_code else before.code_version,
        "owners": list(record.owners),
        "links": dict(record.links),
        "change": change if before.told_id != told else before.change,
    }


def change_of(connection: Connection) -> int:
    """The position of a change that is made now: the transaction's number, or the next one where there is one writer at a time."""
    if connection.dialect.name == "postgresql":
        return connection.execute(sa.select(TransactionId())).scalar_one()
    return (connection.execute(sa.select(sa.func.max(schema.writer.c.change))).scalar() or 0) + 1


def _storable(record: LineageRecord) -> LineageRecord:
    """The record with names that every store can hold; a producer, a run or a time that none can hold is refused."""
    checked_text("the namespace of a producer", record.producer.namespace)
    checked_text("the job of a producer", record.producer.job)
    checked_text("the run of a lineage record", record.run_id)
    checked_milliseconds("the time of a lineage record", record.at_ms)
    links = {storable(name): storable(link) for name, link in record.links.items()}
    return replace(record, statement=storable_statement(record.statement), owners=tuple(map(storable, record.owners)), links=links)


MORE_MS = 7 * 24 * 3_600_000  # so long more may come of a run; what comes of a finished one later changes nothing


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What came of several documents: those that told nothing new, how many targets were told of, and data sets that are not the lake's."""

    documents: int
    repeated: int
    records: int
    reads: int
    outside: tuple[str, ...]


@dataclass(frozen=True)
class SqlIngest:
    """What other programs tell, into a store."""

    engine: Engine

    def take(self, told: Sequence[ToldRun], way: str, names: Names, refused: int = 0, place: str | None = None) -> Taken:
        """Keep what documents tell, all of them or none, what follows from it, and up to where the way was read."""
        with writing(self.engine) as connection:
            return take_on(connection, told, way, names, refused, place)


def take_on(connection: Connection, told: Sequence[ToldRun], way: str, names: Names, refused: int = 0, place: str | None = None) -> Taken:
    """The same within an open transaction that writes."""
    lake = {name.casefold() for name in names.tables}
    outside = tuple(sorted({name for one in told for name in data_sets(one.facts) if name.casefold() not in lake}))
    changed, repeated = _added(connection, [one for one in told if not one.is_whole])
    whole = [one for one in told if one.is_whole]
    found = [record for one in (*changed, *whole) for record in records_of(one)]
    records = record_all_on(connection, found) if found else 0
    reads = [read for one in (*changed, *whole) for read in reads_of(one)]
    keep_reads(connection, reads)
    note_way(connection, way, len(told), refused, len(outside), place)
    return Taken(documents=len(told), repeated=repeated, records=records, reads=len(reads), outside=outside)


def key_of_run(run: ToldRun) -> bytes:
    return digest(run.producer.namespace, run.producer.job, run.run_id)


def _added(connection: Connection, told: Sequence[ToldRun]) -> tuple[list[ToldRun], int]:
    """All that is known by now of the runs of which something new is told, and how many told nothing new."""
    if not told:
        return [], 0
    now = now_ms(connection)
    connection.execute(sa.delete(schema.arriving).where(schema.arriving.c.updated_ms < now - MORE_MS))
    keys = sorted({key_of_run(one) for one in told})
    connection.execute(insert_if_absent(connection, schema.arriving), [{"key": key, "facts": [], "updated_ms": now} for key in keys])
    known = _known(connection, keys)
    runs: dict[bytes, ToldRun] = {}
    repeated = 0
    for one in told:
        key = key_of_run(one)
        before = runs[key].facts if key in runs else known[key]
        if one.facts <= before:
            repeated += 1
        elif known[key] or not _stands(connection, one):
            runs[key] = replace(one, facts=before | one.facts)
    update = sa.update(schema.arriving).where(schema.arriving.c.key == sa.bindparam("of")).values(facts=sa.bindparam("all"), updated_ms=now)
    if runs:
        connection.execute(update, [{"of": key, "all": _plain(run.facts)} for key, run in runs.items()])
    return list(runs.values()), repeated


def _known(connection: Connection, keys: Sequence[bytes]) -> dict[bytes, Facts]:
    """What came of these runs before; nobody else adds to them until the transaction ends."""
    found: dict[bytes, Facts] = {}
    row = schema.arriving.c
    for some in slices(keys, MANY):
        query = sa.select(row.key, row.facts).where(among(connection, row.key, some)).order_by(row.key).with_for_update()
        for key, kept in connection.execute(query):
            found[bytes(key)] = frozenset(tuple(fact) for fact in kept)
    return found


def _stands(connection: Connection, run: ToldRun) -> bool:
    """Whether a run of which nothing is kept any more was recorded already: what comes of it now is a part of what was told."""
    keys = [writer_key(record.producer, record.target) for record in records_of(run)]
    if not keys:
        return False
    row = schema.writer.c
    of_run = (row.run_key == digest(run.run_id), among(connection, row.key, keys))
    return connection.execute(sa.select(1).where(*of_run).limit(1)).first() is not None


def _plain(facts: Facts) -> list[list[str | int | bool | None]]:
    ordered: list[Fact] = sorted(facts, key=str)
    return [list(fact) for fact in ordered]


@dataclass
class LineageToKeep:
    """A record of what a run told of its target, of whose rows it may have `replaced` all.

    `is_new` says whether it is unlike what the run before told; None until it is kept.
    """

    record: LineageRecord
    replaced: bool = False
    is_new: bool | None = None

    def __call__(self, connection: Connection) -> None:
        """Keep it in an open transaction that writes."""
        of = self.record.producer, self.record.target
        before = told_on(connection, *of)
        record_all_on(connection, [self.record])
        if self.replaced:
            forget_code_on(connection, *of)
        self.is_new = told_on(connection, *of) != before

    def kept(self, engine: Engine) -> bool:
        """Keep it now, unless it is; whether it is new."""
        if self.is_new is None:
            with writing(engine) as connection:
                self(connection)
        return bool(self.is_new)


def keep_reads(connection: Connection, several: Sequence[Read]) -> None:
    """Keep reads within an open transaction that writes; what comes again, or in another order, changes nothing."""
    reads = [_storable_read(one) for one in several if one.refs]
    if not reads:
        return
    told = spelled_refs(connection, [one.refs for one in reads])
    reads = [replace(one, refs=refs) for one, refs in zip(reads, told, strict=True)]
    nodes = ensured_nodes(connection, (ref for one in reads for ref in one.refs))
    consumers = _ensured_consumers(connection, reads)
    times: dict[tuple[int, int], tuple[int, int]] = {}
    for one in reads:
        for ref in one.refs:
            key = (nodes[ref], consumers[one.consumer])
            first, last = times.get(key, (one.at_ms, one.at_ms))
            times[key] = (min(first, one.at_ms), max(last, one.at_ms))
    rows = [
        {"node_id": node, "consumer_id": consumer, "first_ms": first, "last_ms": last}
        for (node, consumer), (first, last) in sorted(times.items())
    ]
    connection.execute(_widening(connection), rows)


def note_way(connection: Connection, name: str, documents: int, refused: int, outside: int, place: str | None = None) -> None:
    """Count what came by a way, and keep up to where it was read; the first time says since when it is told."""
    now = now_ms(connection)
    counts = {"documents": documents, "refused": refused, "outside": outside}
    connection.execute(
        insert_if_absent(connection, schema.way).values(name=name, since_ms=now, last_ms=now, documents=0, refused=0, outside=0)
    )
    raised: dict[str, Any] = {column: schema.way.c[column] + number for column, number in counts.items()}
    if place is not None:
        raised["place"] = place
    connection.execute(sa.update(schema.way).where(schema.way.c.name == name).values(last_ms=now, **raised))


def _storable_read(one: Read) -> Read:
    refs = {ColumnRef(storable(ref.table), ref.column and storable(ref.column)) for ref in one.refs}
    who = Consumer(one.consumer.kind, storable(one.consumer.namespace), storable(one.consumer.name))
    return Read(consumer=who, refs=tuple(refs), at_ms=one.at_ms, owners=tuple(map(storable, one.owners)), link=storable(one.link))


def _ensured_consumers(connection: Connection, reads: Iterable[Read]) -> dict[Consumer, int]:
    """The numbers of consumers; owners and link are those of the newest read."""
    newest: dict[Consumer, Read] = {}
    for one in reads:
        if one.consumer not in newest or _newness(one) > _newness(newest[one.consumer]):
            newest[one.consumer] = one
    keys = {digest(who.kind.value, who.namespace, who.name): who for who in newest}
    rows = [{"key": key, "kind": who.kind.value, "namespace": who.namespace, "name": who.name} for key, who in sorted(keys.items())]
    connection.execute(insert_if_absent(connection, schema.consumer), rows)
    found: dict[Consumer, int] = {}
    row = schema.consumer.c
    for some in slices(sorted(keys), MANY):
        query = sa.select(schema.consumer).where(among(connection, row.key, some)).order_by(row.key).with_for_update()
        for kept in connection.execute(query).all():
            who = keys[bytes(kept.key)]
            found[who] = kept.consumer_id
            told = newest[who]
            if _newness(told) > (kept.told_ms, list(kept.owners), kept.link):
                values = {"owners": list(told.owners), "link": told.link, "told_ms": told.at_ms}
                connection.execute(sa.update(schema.consumer).where(row.consumer_id == kept.consumer_id).values(**values))
    return found


def _newness(one: Read) -> tuple[int, list[str], str]:
    return one.at_ms, list(one.owners), one.link


def _widening(connection: Connection) -> postgresql.Insert | sqlite.Insert:
    """An INSERT that widens the times of rows that are there."""
    row, keys = schema.read.c, list(schema.read.primary_key)
    if connection.dialect.name == "postgresql":
        statement = postgresql.insert(schema.read)
        new = statement.excluded
        times = {"first_ms": sa.func.least(row.first_ms, new.first_ms), "last_ms": sa.func.greatest(row.last_ms, new.last_ms)}
        return statement.on_conflict_do_update(index_elements=keys, set_=times)
    other = sqlite.insert(schema.read)
    times = {"first_ms": sa.func.min(row.first_ms, other.excluded.first_ms), "last_ms": sa.func.max(row.last_ms, other.excluded.last_ms)}
    return other.on_conflict_do_update(index_elements=keys, set_=times)


def forget_code_on(connection: Connection, producer: Producer, target: str) -> None:
    """Let no row be by another code than the one of now, as all rows were replaced; in a transaction that writes."""
    connection.execute(sa.update(schema.writer).where(schema.writer.c.key == writer_key(producer, target)).values(code_version=None))
