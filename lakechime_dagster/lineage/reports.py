"""What documents report of a run of another program; reports of one run add up in any order."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from lakechime_dagster.dce.partitions import checked_milliseconds, checked_text
from lakechime_dagster.lineage.columns import (
    READ,
    ColumnRef,
    Consumer,
    ConsumerKind,
    LineageRecord,
    Producer,
    Read,
    Statement,
    inputs_of,
    summed,
)

if TYPE_CHECKING:
    from pydantic import TypeAdapter

NO_SOURCE = "its producer reports no source of it"
NO_COLUMNS = "its producer reports no columns"


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """What documents say of a run so far.

    Attributes:
        done_ms: When it succeeded, as it was reported last; None while it did not.
        by_event: By target what events say of columns. One without a source is a column of which
            nothing else is known.
        by_sql: By target what SQL says of columns, which is believed less.
        inputs: Data sets that are read, into whatever the run writes.
        reads_only: Columns, or data sets, that are read and written nowhere.
        consumers: Who looks at what is read, each with an address or "".
        is_whole: Nothing more of the run can come.

    Raises:
        InvalidValueError: for a name or a time that no store can hold.
    """

    producer: Producer
    run_id: str
    done_ms: int | None = None
    by_event: Mapping[str, Statement] = field(default_factory=dict, hash=False)
    by_sql: Mapping[str, Statement] = field(default_factory=dict, hash=False)
    inputs: frozenset[str] = frozenset()
    reads_only: frozenset[ColumnRef] = frozenset()
    owners: frozenset[str] = frozenset()
    links: frozenset[tuple[str, str]] = frozenset()
    consumers: frozenset[tuple[Consumer, str]] = frozenset()
    is_whole: bool = False

    def __post_init__(self) -> None:
        checked_text("producer", self.producer.namespace)
        checked_text("task", self.producer.job)
        checked_text("run", self.run_id)
        if self.done_ms is not None:
            checked_milliseconds("at", self.done_ms)

    @property
    def data_sets(self) -> set[str]:
        """The names of all data sets in it."""
        statements = (*self.by_event.values(), *self.by_sql.values())
        found = {
            *self.inputs,
            *(ref.table for ref in self.reads_only),
            *(one.target for one in statements),
        }
        return found.union(
            *(one.inputs for one in statements),
            (source.ref.table for one in statements for source in one.sources),
        )

    def joined(self, other: "RunReport") -> "RunReport":
        """What both say of one run."""
        return replace(
            self,
            done_ms=max(
                (one for one in (self.done_ms, other.done_ms) if one is not None), default=None
            ),
            by_event=by_target((*self.by_event.values(), *other.by_event.values())),
            by_sql=by_target((*self.by_sql.values(), *other.by_sql.values())),
            inputs=self.inputs | other.inputs,
            reads_only=self.reads_only | other.reads_only,
            owners=self.owners | other.owners,
            links=self.links | other.links,
            consumers=self.consumers | other.consumers,
        )

    def with_sql(self, statements: Iterable[Statement]) -> "RunReport":
        """This, and what statements of SQL say, as those of one run in their order."""
        several = list(statements)
        if not several:
            return self
        reads: set[ColumnRef] = set()
        for one in several:
            if one.target == READ:
                refs = {source.ref for source in one.sources}
                reads |= refs | {
                    ColumnRef(name)
                    for name in one.inputs
                    if not any(ref.table == name for ref in refs)
                }
        written = {one.target: one for one in summed(one for one in several if one.target != READ)}
        return self.joined(replace(self, by_sql=written, reads_only=frozenset(reads)))

    def records(self) -> tuple[LineageRecord, ...]:
        """What the run wrote, a record for each of its targets; none before it succeeded."""
        if self.done_ms is None:
            return ()
        return tuple(
            LineageRecord(
                producer=self.producer,
                run_id=self.run_id,
                at_ms=self.done_ms,
                statement=self._statement(target),
                owners=tuple(sorted(self.owners)),
                links=dict(sorted(self.links)),
            )
            for target in sorted({*self.by_event, *self.by_sql})
        )

    def reads(self) -> tuple[Read, ...]:
        """What the run read for whoever looks at it, or for itself; none before it succeeded, or
        where it writes all that it reads.
        """
        is_reader = not (self.by_event or self.by_sql)
        refs = self.reads_only or (
            frozenset(map(ColumnRef, self.inputs)) if is_reader else frozenset[ColumnRef]()
        )
        if self.done_ms is None or not refs:
            return ()
        itself = (Consumer(ConsumerKind.JOB, self.producer.namespace, self.producer.job), "")
        return tuple(
            Read(
                consumer=who,
                refs=tuple(sorted(refs)),
                at_ms=self.done_ms,
                owners=tuple(sorted(self.owners)),
                link=address,
            )
            for who, address in sorted(self.consumers or {itself})
        )

    def _statement(self, target: str) -> Statement:
        """What is known of a target: by events where these have any source, else by SQL."""
        event, sql = self.by_event.get(target), self.by_sql.get(target)
        inputs = self.inputs | set(sql.inputs if sql else ())
        if sql is not None and (event is None or not event.sources):
            return replace(sql, inputs=(*inputs, *inputs_of(sql.columns, sql.indirect)))
        assert event is not None
        reason = NO_SOURCE if any(one.sources for one in event.columns) else NO_COLUMNS
        columns = tuple(
            one if one.sources else replace(one, opaque=(reason,)) for one in event.columns
        )
        unknown = () if event.sources else event.unknown
        return replace(
            event,
            columns=columns,
            inputs=tuple(inputs.union(inputs_of(columns, event.indirect)) - {target}),
            unknown=unknown if columns else (*unknown, NO_COLUMNS),
        )

    def to_json(self) -> dict[str, Any]:
        """All but whose run it is, as JSON; `report_from` reads it."""
        whose = {"producer", "run_id"}
        return _adapter().dump_python(self, mode="json", exclude=whose, exclude_defaults=True)


def report_from(producer: Producer, run_id: str, value: Mapping[str, Any]) -> RunReport:
    """The report of a run from its JSON; an empty one where that is."""
    return _adapter().validate_python({**value, "producer": producer, "run_id": run_id})


@cache
def _adapter() -> "TypeAdapter[RunReport]":
    from pydantic import TypeAdapter  # for who reads or writes JSON

    return TypeAdapter(RunReport)


def by_target(statements: Iterable[Statement]) -> dict[str, Statement]:
    """All that statements say of each target, whatever their order."""
    found: dict[str, Statement] = {}
    for one in statements:
        known = found[one.target].joined(one) if one.target in found else one
        found[one.target] = replace(
            known, columns=tuple(sorted(known.columns, key=lambda column: column.column))
        )
    return dict(sorted(found.items()))
