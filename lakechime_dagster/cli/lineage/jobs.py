"""`lakechime lineage jobs`: which jobs write and read what, and which go before which."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli.lineage.names import At, Depth, Limit, asked
from lakechime_dagster.cli.options import Json
from lakechime_dagster.cli.output import count, print_json, print_table, say

if TYPE_CHECKING:
    from lakechime_dagster.lineage.graph.jobs import Job, JobGraph, JobHit

OfJob = Annotated[str | None, typer.Argument(metavar="[JOB]", help="What is behind this one: namespace/job, or the job; all unless given.")]
Upstream = Annotated[bool, typer.Option("--upstream", help="What is before it instead.")]


def jobs(
    name: OfJob = None, upstream: Upstream = False, depth: Depth = None, at: At = None, limit: Limit = 100, as_json: Json = False
) -> None:  # fmt: skip
    """Tell which jobs write and read what, as runs told it; of one job, those behind it by steps, with what they write."""
    from lakechime_dagster.lineage.graph.jobs import JobGraph
    from lakechime_dagster.store.lineage.jobs import jobs_at

    lineage = asked(at)
    graph = JobGraph(jobs_at(lineage.platform.store.engine, lineage.at_ms))
    if name is None:
        _all(graph, limit, as_json)
        return
    job = graph.job(name)
    hits = graph.around(job, upstream=upstream, depth=depth)
    if as_json:
        told = [{"layer": hit.layer, "through": list(hit.through), **_document(hit.job)} for hit in hits[:limit]]
        print_json({"of": _document(job), "upstream": upstream, "jobs": told, "more": len(hits[limit:])})
        return
    say(f"{job.name} writes {_names(job.writes)} and reads {_names(job.reads)}")
    side = "before" if upstream else "behind"
    print_table(("layer", "job", "writes", "owners", "by way of"), [_row(hit) for hit in hits[:limit]], empty=f"no job is {side} it")
    _print_more(len(hits[limit:]))


def _all(graph: "JobGraph", limit: int, as_json: bool) -> None:
    shown, more = graph.jobs[:limit], len(graph.jobs[limit:])
    behind = {job.name: sorted(graph.next_of(job)) for job in shown}
    if as_json:
        print_json({"jobs": [_document(job) | {"before": behind[job.name]} for job in shown], "more": more})
        return
    rows = [(job.name, _names(job.reads), _names(job.writes), _names(job.owners), _names(behind[job.name])) for job in shown]
    print_table(("job", "reads", "writes", "owners", "goes before"), rows, empty="no run has recorded lineage yet")
    _print_more(more)


def _document(job: "Job") -> dict[str, Any]:
    return {
        "namespace": job.producer.namespace, "job": job.producer.job, "writes": list(job.writes), "reads": list(job.reads),
        "owners": list(job.owners),
    }  # fmt: skip


def _row(hit: "JobHit") -> tuple[int, str, str, str, str]:
    return hit.layer, hit.job.name, _names(hit.job.writes), _names(hit.job.owners), _names(hit.through)


def _names(names: "tuple[str, ...] | list[str]", most: int = 4) -> str:
    return ", ".join([*names[:most], *([f"+{len(names) - most}"] if len(names) > most else [])]) or "nothing"


def _print_more(more: int) -> None:
    if more:
        say(f"… and {count(more, 'more job')}; --limit shows them")
