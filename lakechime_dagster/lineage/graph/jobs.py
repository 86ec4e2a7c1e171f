"""The graph of jobs: one goes before another that reads what it writes, whoever schedules them."""

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from lakechime_dagster.errors import NotFoundError, shown
from lakechime_dagster.lineage.record import Producer

NEAR = 3  # jobs that an error proposes


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a job writes and reads; one that writes nothing is a reader alone. Names are sorted."""

    producer: Producer
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.producer.namespace}/{self.producer.job}"


@dataclass(frozen=True, kw_only=True)
class JobHit:
    """A job so many steps behind another one, or before it, and the data sets that lead there."""

    job: Job
    layer: int
    through: tuple[str, ...]


class JobGraph:
    """Jobs by their names; what a job writes and reads itself leads nowhere."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.jobs = tuple(sorted(jobs, key=lambda one: one.name))
        self._writers: dict[str, list[Job]] = {}
        self._readers: dict[str, list[Job]] = {}
        for job in self.jobs:
            for table in job.writes:
                self._writers.setdefault(table, []).append(job)
            for table in job.reads:
                self._readers.setdefault(table, []).append(job)

    def job(self, text: str) -> Job:
        """The job that a person means: by namespace and name, or by its name where only one namespace has it.

        Raises:
            NotFoundError: naming those that are meant by it, or what is nearest.
        """
        exact = [one for one in self.jobs if one.name == text]
        found = exact or [one for one in self.jobs if one.producer.job == text]
        if len(found) == 1:
            return found[0]
        if found:
            raise NotFoundError(f"{shown(text)} is a job of several namespaces; name one of {', '.join(one.name for one in found)}")
        if not self.jobs:
            raise NotFoundError(f"no job {shown(text)}: no run has recorded lineage yet")
        names = {name.lower(): one.name for one in self.jobs for name in (one.producer.job, one.name)}
        near = list(dict.fromkeys(names[name] for name in difflib.get_close_matches(text.lower(), names, n=NEAR)))
        remedy = f"did you mean {' or '.join(near)}?" if near else "`lakechime lineage jobs` shows those that are known"
        raise NotFoundError(f"lineage knows no job {shown(text)}; {remedy}")

    def next_of(self, job: Job, *, upstream: bool = False) -> dict[str, tuple[Job, set[str]]]:
        """The jobs directly behind one, or before it, by name, with the data sets that lead there."""
        others, tables = (self._writers, job.reads) if upstream else (self._readers, job.writes)
        found: dict[str, tuple[Job, set[str]]] = {}
        for table in tables:
            for other in others.get(table, ()):
                if other.name != job.name:
                    found.setdefault(other.name, (other, set()))[1].add(table)
        return found

    def around(self, job: Job, *, upstream: bool = False, depth: int | None = None) -> tuple[JobHit, ...]:
        """All jobs behind one, or before it, each once by its least number of steps; by steps and name."""
        hits: dict[str, JobHit] = {}
        layer, border = 0, [job]
        while border and (depth is None or layer < depth):
            layer += 1
            reached = self._reached(border, {job.name, *hits}, upstream)
            hits |= {name: JobHit(job=one, layer=layer, through=tuple(sorted(through))) for name, (one, through) in reached.items()}
            border = [one for one, _ in reached.values()]
        return tuple(sorted(hits.values(), key=lambda hit: (hit.layer, hit.job.name)))

    def _reached(self, border: Iterable[Job], known: Collection[str], upstream: bool) -> dict[str, tuple[Job, set[str]]]:
        reached: dict[str, tuple[Job, set[str]]] = {}
        for job in border:
            for name, (other, through) in self.next_of(job, upstream=upstream).items():
                if name not in known:
                    reached.setdefault(name, (other, set()))[1].update(through)
        return reached
