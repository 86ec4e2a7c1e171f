"""The manifest of a lake."""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakechime_dagster.lineage.check import Finding, raised, readers_of, still_made
from lakechime_dagster.lineage.columns import RECIPIENT_MS, ColumnRef, Consumer, ConsumerKind, Names, Read, Statement
from lakechime_dagster.lineage.graph import is_unsure
from lakechime_dagster.lineage.manifest import UNTIL_IT_RUNS, Manifest, PlannedColumn, PlannedTable
from lakechime_dagster.lineage.plan_digests import digests_of
from lakechime_dagster.lineage.plan_dump import Dump, dump_of
from lakechime_dagster.lineage.plan_statements import acts, statements_of
from lakechime_dagster.lineage.reads import SqlReads
from lakechime_dagster.lineage.runs import names_of
from lakechime_dagster.lineage.service import is_of_subscription
from lakechime_dagster.lineage.store import LineageStandings
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.tables import LakeTable, SourceTable, code_digest
from lakechime_dagster.triggers.subscription import Subscription

if TYPE_CHECKING:
    from lakechime_dagster.lineage.spark_planning import Planner, Schema


def planned_manifest(
    lake: Lake, platform: Platform, log: Callable[[str], None], before: Manifest | None = None, *, only_manifest: bool = False
) -> Manifest:
    """What the code of a lake says now.

    Args:
        lake: The lake.
        platform: Where its tables are.
        log: Told which Spark is used.
        before: An earlier manifest. Schemas of tables that are not there are taken from it, and what was accepted
            stays as long as the code makes it.
        only_manifest: Take no schema from tables, so that the answer is the same wherever it is asked.

    Raises:
        PlanUnreadableError: this Spark shows no plans.
        SparkFailedError: what Spark said.
    """
    from lakechime_dagster.lineage.spark_planning import Planner
    from lakechime_dagster.spark.driver import (
        described,
        open_driver,  # only who asks for this needs Spark
    )

    settings = platform.settings
    with open_driver(settings.spark, settings.home, jars=settings.jars, log=log) as driver, described():
        return manifest_by(Planner(driver.spark), lake, platform, before, only_manifest=only_manifest)


def manifest_by(
    planner: "Planner", lake: Lake, platform: Platform, before: Manifest | None = None, *, only_manifest: bool = False
) -> Manifest:
    """The same by a planner."""
    return _planning(lake, platform, planner, before, only_manifest).manifest()


def _planning(lake: Lake, platform: Platform, planner: "Planner", before: Manifest | None, only_manifest: bool) -> "_Planning":
    from lakechime_dagster.runtime.resource import declared_subscriptions  # which has Dagster, unlike what plans

    return _Planning(lake, platform, planner, before, only_manifest, names_of(platform, lake), declared_subscriptions())


@dataclass
class _Planning:
    lake: Lake
    platform: Platform
    planner: "Planner"
    before: Manifest | None
    only_manifest: bool
    names: Names
    subscriptions: Mapping[str, Subscription]
    tables: dict[str, PlannedTable] = field(default_factory=dict)

    def manifest(self) -> Manifest:
        """All tables, inputs first, as a reader is asked over what its inputs would be."""
        for table in self.lake.tables:
            planned = self._computed(table) if isinstance(table, LakeTable) else self._found(table.name, table.location)
            planned = self._written(planned) if isinstance(table, SourceTable) else planned
            self.tables[table.name] = replace(planned, owner=table.owner or "")
        accepted = still_made(self.before.accepted, self.tables.values()) if self.before is not None else {}
        return Manifest(lake=self.lake.name, tables=self.tables, accepted=accepted)

    def _found(self, name: str, location: str | None) -> PlannedTable:
        """A table that no function of the lake computes, by its log or as it was known before."""
        schema = () if self.only_manifest else self.platform.log(name, location).columns()
        if schema:
            return PlannedTable(name=name, columns=tuple(PlannedColumn(name=one, type=kind, nullable=can) for one, kind, can in schema))
        known = self.before.tables.get(name) if self.before is not None else None
        if known is not None and known.columns:
            return PlannedTable(name=name, columns=known.columns)
        return PlannedTable(name=name, unknown=(f"{name} is not there yet, so that its columns are not known",))

    def _written(self, found: PlannedTable) -> PlannedTable:
        """A table with the reason why nothing of its columns is known, if a subscription declares that a plain asset or job writes it."""
        by = next((subscription.name for subscription in self.subscriptions.values() if subscription.target == found.name), None)
        if by is not None:
            return replace(found, unknown=(*found.unknown, f"{UNTIL_IT_RUNS}: the job of {by} writes it"))
        known = self.before.tables.get(found.name) if self.only_manifest and self.before is not None else None
        return found if known is None or found.unknown else replace(found, unknown=known.unknown)

    def _computed(self, table: LakeTable) -> PlannedTable:
        code, laid_out = code_digest(table), laid_out_of(table)
        plain = PlannedTable(name=table.name, code=code, laid_out=laid_out, inputs=table.inputs)
        if why := self._hindered(table):
            return _unknown(plain, why)
        inputs = {alias: (read.table, self._schema(read.table)) for alias, read in table.reads.items()}
        planned = self.planner.planned(table.compute, table.sql, inputs)
        try:
            actions = [dump_of(one) for one in planned.actions]
            if why := acted(actions, self.names):
                return _unknown(plain, "; ".join(filter(None, (why, planned.why))), self._as_it_is(table, code))
            if planned.result is None:
                return _unknown(plain, planned.why)
            return self._read(plain, planned.schema, dump_of(planned.result), actions)
        except Exception as error:  # noqa: BLE001 - a plan of any form that nobody met yet makes its own table unknown and no other
            return _unknown(plain, f"not known: its plan could not be read: {type(error).__name__}: {error}", planned.schema)

    def _as_it_is(self, table: LakeTable, code: str) -> "Schema":
        """The columns that a table has already, or had by equal code: what reads it can be asked though its code cannot."""
        schema = () if self.only_manifest else self.platform.log(table.name, table.location).columns()
        known = self.before.tables.get(table.name) if self.before is not None else None
        if schema or known is None or known.code != code:
            return schema
        return tuple((one.name, one.type, one.nullable) for one in known.columns)

    def _hindered(self, table: LakeTable) -> str:
        """Why a table cannot be asked for: an input is not known, or its function wants what only a run has."""
        for name in table.inputs:
            if not self.tables[name].columns:
                return f"not known until {name} is"
        if table.compute is None:
            return ""
        wanted = {one.name for one in table.injected}
        parameters = inspect.signature(table.compute).parameters.values()
        required = [one.name for one in parameters if one.name in wanted and one.default is inspect.Parameter.empty]
        return f"{UNTIL_IT_RUNS}: its function wants {', '.join(required)}; give it a default" if required else ""

    def _schema(self, name: str) -> "Schema":
        return tuple((column.name, column.type, column.nullable) for column in self.tables[name].columns)

    def _read(self, plain: PlannedTable, schema: "Schema", result: Dump, actions: list[Dump]) -> PlannedTable:
        found = statements_of([*actions, result], self.names, plain.name)
        statement = next((one for one in reversed(found.statements) if one.target == plain.name), None)
        if statement is None or result.plan is None:
            return _unknown(plain, f"not known: {'; '.join(found.unknown) or 'its plan could not be read'}", schema)
        digests = digests_of(result.plan)
        columns = tuple(
            PlannedColumn(
                name=name,
                type=kind,
                nullable=can,
                sources=lineage.sources,
                opaque=lineage.opaque,
                foreign=lineage.foreign,
                digest=digest,
            )
            for (name, kind, can), lineage, digest in zip(schema, statement.columns, digests.columns.values(), strict=True)
        )
        inputs = tuple(dict.fromkeys((*plain.inputs, *statement.inputs)))
        return PlannedTable(
            name=plain.name,
            code=plain.code,
            laid_out=plain.laid_out,
            inputs=inputs,
            columns=columns,
            indirect=statement.indirect,
            rows=digests.rows,
            unknown=(*statement.unknown, *found.unknown),
            foreign=statement.foreign,
        )


def acted(actions: Iterable[Dump], names: Names) -> str:
    """Why what a function computes is not known until it runs: it writes, or acts on rows, of which it may make anything."""
    done: dict[str, None] = {}
    for one in filter(acts, actions):
        targets = [statement.target for statement in statements_of([one], names).statements]
        done |= dict.fromkeys(f"writes {target if target in names.tables else _outside(target)}" for target in targets)
        done |= {} if targets else {"acts on rows": None}
    return f"{UNTIL_IT_RUNS}: its function {' and '.join(done)}" if done else ""


def _outside(target: str) -> str:
    """What is outside of the lake, without the folders above it, which differ from machine to machine."""
    return target.rstrip("/").rsplit("/", 1)[-1]


def laid_out_of(table: LakeTable) -> Mapping[str, str]:
    """How a table is kept: what of it changes its rows though its code does not."""
    said = {
        "keys": ", ".join(table.keys),
        "partitioned by": ", ".join(f"{name} {kind}" for name, kind in table.levels.as_dict().items()),
        "refresh": table.refresh.value,
    }
    said |= {f"expect {name}": condition for name, condition in table.expect.items()}
    return {name: value for name, value in said.items() if value}


def _unknown(plain: PlannedTable, why: str, schema: "Schema" = ()) -> PlannedTable:
    columns = tuple(PlannedColumn(name=name, type=kind, nullable=can, opaque=(why,)) for name, kind, can in schema)
    return PlannedTable(name=plain.name, code=plain.code, laid_out=plain.laid_out, inputs=plain.inputs, columns=columns, unknown=(why,))


@dataclass(frozen=True, kw_only=True)
class ReadFindings:
    """Findings and, by the key of each, who reads what it is about; `not_known` is why others may read it too."""

    findings: tuple[Finding, ...]
    readers: Mapping[str, Sequence[Read]] = field(default_factory=dict)
    not_known: str = ""


def gate_readers(platform: Platform, lake: Lake, findings: tuple[Finding, ...]) -> ReadFindings:
    """The findings as they are for those who read: what is gone breaks who read it in the last 35 days.

    A job elsewhere reads what it writes something of, by what its newest run told.
    """
    reads, tables = SqlReads(platform.store.engine), {one.table for one in findings}
    several = [
        Read(consumer=one.consumer, refs=(one.ref,), at_ms=one.last_ms, owners=one.owners, link=one.link) for one in reads.of_tables(tables)
    ]
    several += _jobs_elsewhere(platform, lake, tables)
    found = raised(findings, several, platform.store.now() - RECIPIENT_MS)
    not_known = "" if reads.ways() else "nobody tells who reads in dashboards or elsewhere"
    return ReadFindings(findings=found, readers=readers_of(found, several), not_known=not_known)


def _jobs_elsewhere(platform: Platform, lake: Lake, tables: Collection[str]) -> Iterable[Read]:
    """What programs that are no subscription of the lake read of tables to write others, when a run told it last."""
    for one in LineageStandings(platform.store.engine).of_inputs(tables):
        if not is_of_subscription(platform, lake, one):
            consumer = Consumer(ConsumerKind.JOB, one.producer.namespace, one.producer.job)
            link = next(iter(one.links.values()), "")
            yield Read(consumer=consumer, refs=_refs(one.statement, tables), at_ms=one.last_ms, owners=one.owners, link=link)


def _refs(statement: Statement, tables: Collection[str]) -> tuple[ColumnRef, ...]:
    """What a statement reads of tables: the columns, and a table itself where it may be others of it too, or none is told."""
    found = {one.ref for one in statement.sources if one.ref.table in tables and one.ref.column is not None}
    told = {one.table for one in found}
    whole = {ColumnRef(table) for table in statement.inputs if table in tables and (is_unsure(statement) or table not in told)}
    return tuple(sorted(found | whole, key=lambda ref: (ref.table, ref.column or "")))
