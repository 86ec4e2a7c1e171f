"""One part of a group's step: its types' events are counted, what is new of them is learnt, and then their tables are written."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from pyspark.sql import SparkSession

from lakechime_dagster.errors import LaneConflictError
from lakechime_dagster.schema.cold import Came, cold_types
from lakechime_dagster.schema.learning import learned, registered, sent_of
from lakechime_dagster.schema.producers import Accounts
from lakechime_dagster.schema.reading import Part
from lakechime_dagster.schema.replay import Replay
from lakechime_dagster.schema.repository import KnownType, Learning, Prototype, SchemaRepository, kept_of
from lakechime_dagster.schema.results import AT_ONCE, COLD, TypeResult
from lakechime_dagster.schema.variation import Variation
from lakechime_dagster.spark.drivers.failures import described
from lakechime_dagster.spark.events.appending import Ahead
from lakechime_dagster.spark.events.census import NOTHING, TypeCount, counted, prototypes
from lakechime_dagster.spark.events.job import GroupJob
from lakechime_dagster.spark.events.slices import Events, Slices, events_of
from lakechime_dagster.spark.events.writing import MadeAnewError, ToWrite, TypeWriter
from lakechime_dagster.spark.session_confs import in_threads

WRITERS = 4  # tables that are written at a time

Phase = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True, kw_only=True)
class Looked:
    """The types that a step finds.

    Attributes:
        known: All of them, each with the place that its own table tells.
        ahead: What tables hold beyond what the store knows.
        failed: Why a type cannot be written, as its table could not be asked, or its events not be read.
        waiting: Why a type that is due gets no table.
        counted: Events of those that wait which earlier steps have counted, so that they are not read again.
        unread: Those that failed as nobody can tell what of the stream's table came since.
    """

    known: Mapping[str, KnownType]
    ahead: Mapping[str, Ahead]
    failed: Mapping[str, Exception]
    waiting: Mapping[str, str] = field(default_factory=dict)
    counted: Mapping[str, int] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()

    def without(self, unread: Mapping[str, Exception]) -> "Looked":
        """The same, with more types of which nobody can tell what came."""
        return replace(self, failed={**self.failed, **unread}, unread=frozenset({*self.unread, *unread}))

    def has(self, name: str, asked: Replay, execution_id: str) -> bool:
        """Whether the table of a type has the commit of a replay that another attempt at an execution made."""
        stamps = [one.stamp for one in self.ahead[name].commits] if name in self.ahead else []
        return any((one.execution_id, one.facts.get("replay")) == (execution_id, asked.replay_id) for one in stamps)


@dataclass(frozen=True, kw_only=True)
class PartDone:
    """What was done for each type of a part, and what is known of those that have something to be written, or replayed.

    Attributes:
        made_anew: Types whose tables another attempt made anew meanwhile, with layouts that are not those of `learnt`.
    """

    results: Mapping[str, TypeResult]
    learnt: Mapping[str, ToWrite] = field(default_factory=dict)
    made_anew: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class PartStep:
    """What one attempt at a step does with the types of a part."""

    spark: SparkSession
    job: GroupJob
    repository: SchemaRepository
    slices: Slices
    writer: TypeWriter
    looked: Looked
    now_ms: int

    def done(self, part: Part, phase: Phase) -> PartDone:
        """Do it; a type that cannot be written hinders no other.

        Raises:
            LaneConflictError: another attempt has found out something of a type meanwhile.
        """
        with phase("count"):
            events = events_of(self.slices, part)
            counts = self._counts(part, events)
            failed = {**self.looked.failed, **events.unread}
        with phase("learn"):
            told = {name: self.looked.known[name] for name in part.starts if name in counts or name in self.job.replays}
            learnt, news = self._learnt(told, counts, events, part)
            cold = self._cold(part, counts, {name for name in news if name in told} | {*self.job.replays})
        with phase("write"):
            kept = {*self.looked.waiting, *failed, *cold}
            writing = [learnt[name] for name in sorted(counts) if name in learnt and name not in kept]
            wrote = in_threads(self.spark, WRITERS, self.writer.written, writing)
            done = {one.type: one for one in wrote if isinstance(one, TypeResult)}
            anew = {one.type: one for one in wrote if isinstance(one, MadeAnewError)}
            done |= {name: self.writer.written_anew(learnt[name], one.ahead) for name, one in anew.items()}
        rest = {name: self._unwritten(name, part, counts.get(name), failed, cold.get(name, 0)) for name in part.starts if name not in done}
        results = rest | {name: self._read_on(one, part) for name, one in done.items()}
        return PartDone(results=results, learnt=learnt, made_anew=frozenset(anew))

    def done_apart(self, part: Part, phase: Phase) -> PartDone:
        """The same of types that are far behind, of which nothing hinders others: they are tried again."""
        try:
            with described():
                return self.done(part, phase)
        except LaneConflictError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the other types are written by now
            return PartDone(results={name: self.writer.failed(self.looked.known[name], error, None) for name in part.starts})

    def _counts(self, part: Part, events: Events) -> dict[str, TypeCount]:
        """The events of each type; of those of which something is withheld also who sent which variation."""
        watched, tells = [name for name in part.starts if self.looked.known[name].withheld], self.job.group.tells_producers
        frames = (counted(frame, by_producer=tells, watched=watched) for frame in events.frames)
        return {name: count for counts in frames for name, count in counts.items()}

    def _cold(self, part: Part, counts: Mapping[str, TypeCount], news: set[str]) -> dict[str, int]:
        """The types of a shared part that stay where they are, by when each is written at the latest."""
        if part.end < self.slices.version:
            return {}
        came = [
            Came(known=self.looked.known[name], rows=count.rows, start=part.starts[name], is_news=name in news)
            for name, count in counts.items() if name not in self.looked.waiting
        ]  # fmt: skip
        return cold_types(came, self.job.group, self.now_ms)

    def _learnt(
        self, told: Mapping[str, KnownType], counts: Mapping[str, TypeCount], events: Events, part: Part
    ) -> tuple[dict[str, ToWrite], set[str]]:  # fmt: skip
        """What the events tell of their types, kept by the store before any table is touched, and which of them have a new layout."""
        group, waiting, found = self.job.group, self.looked.waiting, dict[str, list[Prototype]]()
        variations = self.repository.variations(group.name, [name for name in told if name not in waiting])
        unknown = {name: {*counts[name].variations} - {*known} for name, known in variations.items() if name in counts}
        cut = [name for name in unknown if counts[name].is_cut]
        if cut or any(unknown.values()):
            for frame in events.frames:
                found |= prototypes(frame, unknown, part.end, cut)
        accounts = self._accounts(told, counts, variations, found)
        learnings: dict[str, Learning] = {
            name: learning for name, one in told.items()
            if (
                learning := registered(one) if name in waiting
                else learned(one, found.get(name, []), group.contract_of(name), accounts.get(name))
            )
        }  # fmt: skip
        versions = self.repository.learn(group.name, list(learnings.values())) if learnings else {}
        learnt = {
            name: ToWrite(
                type=learnings[name].known_after(one, versions[name]) if name in learnings else one, count=counts.get(name, NOTHING),
                variations={**variations.get(name, {}), **kept_of(found.get(name, []))},
                columns_added=learnings[name].columns_added(one) if name in learnings else 0, ahead=self.looked.ahead.get(name),
                end=part.end, brought=(learnings[name].brought if name in learnings else None) or {},
            )
            for name, one in told.items()
        }  # fmt: skip
        return learnt, {name for name, one in learnings.items() if one.is_new_layout}

    def _accounts(
        self, told: Mapping[str, KnownType], counts: Mapping[str, TypeCount], variations: Mapping[str, Mapping[str, Variation]],
        found: Mapping[str, Sequence[Prototype]],
    ) -> dict[str, Accounts]:  # fmt: skip
        """Who sends what may bring columns, by type; the store is asked of those alone to which something new came, or that lack some."""
        group = self.job.group
        if not group.tells_producers:
            return {}
        asked = [name for name, one in told.items() if found.get(name) or one.withheld]
        columns = self.repository.columns_brought(group.name, asked) if asked else {}
        return {
            name: Accounts(
                cap=group.cap_of(name), columns=columns.get(name, {}),
                sent=sent_of(found.get(name, ()), variations.get(name, {}), counts.get(name, NOTHING).senders),
            )
            for name in told
        }  # fmt: skip

    def _unwritten(self, name: str, part: Part, count: TypeCount | None, failed: Mapping[str, Exception], due_ts: int) -> TypeResult:
        """A type that is due and of which nothing is written: as it failed, must wait or is cold, or nothing came."""
        one, waits = self.looked.known[name], COLD if due_ts else self.looked.waiting.get(name, "")
        if name in failed:
            return self._read_on(self.writer.failed(one, failed[name], count.rows if count is not None else None), part)
        start = self.slices.start(one.place)
        rows = (count.rows if count is not None else 0) + self.looked.counted.get(name, 0) if waits else 0
        result = TypeResult(
            type=one.type, table=one.table, home=one.home, start=start, end=start if waits else part.end, rows=rows, pending=rows,
            layout=one.layout_version, waits=waits, due_ts=due_ts,
        )  # fmt: skip
        return self._read_on(self.writer.with_earlier(result, one, self.looked.ahead.get(name)), part)

    def _read_on(self, result: TypeResult, part: Part) -> TypeResult:
        """What was done for a type; one that is not at the end of the step is read on by the next one, and was not counted whole."""
        if part.end == self.slices.version or result.waits:
            return result
        return replace(result, left=None) if result.error else replace(result, due_ts=AT_ONCE)
