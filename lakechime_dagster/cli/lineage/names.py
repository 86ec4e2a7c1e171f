"""What the commands of lineage share: their options, and answers as documents and for people."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.context import declared_lake, open_platform
from lakechime_dagster.cli.options import MAX_LIMIT
from lakechime_dagster.cli.output import count, note, print_table, say, when
from lakechime_dagster.compat import StrEnum

if TYPE_CHECKING:
    from lakechime_dagster.lineage.graph.answers import Hit, Hits
    from lakechime_dagster.lineage.graph.consumers import ConsumerHit
    from lakechime_dagster.lineage.graph.facts import TableFacts
    from lakechime_dagster.lineage.graph.paths import Step
    from lakechime_dagster.lineage.graph.reach import Certainty
    from lakechime_dagster.resources.lineage.asked import AskedLineage


class KindName(StrEnum):
    """How surely something was hit, as an option says it."""

    DIRECT = "direct"
    INDIRECT = "indirect"
    UNSURE = "unsure"


Name = Annotated[str, typer.Argument(metavar="NAME", help="A table, or a column as schema.table.column.")]
Names = Annotated[list[str], typer.Argument(metavar="NAME…", help="Tables, or columns as schema.table.column.")]
At = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help="As recorded then: an ISO 8601 time, UTC without a zone, or an age (30d).")
]
Depth = Annotated[int | None, typer.Option("--depth", min=1, max=MAX_LIMIT, help="At most so many steps.")]
OfKind = Annotated[
    KindName | None,
    typer.Option("--kind", help="Only what values come from (direct), what only decides (indirect), or what nobody can tell (unsure)."),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=MAX_LIMIT, help="At most so many tables, the nearest ones first.")]


def asked(at: str | None = None) -> "AskedLineage":
    """The lineage of this deployment's store and lake, now or at a time."""
    from lakechime_dagster.resources.lineage.asked import AskedLineage

    platform = open_platform()
    at_ms = None if at is None else parse.past_milliseconds("--at", at, platform.store.now())
    return AskedLineage(platform, declared_lake(platform.settings), at_ms)


def certainty(kind: KindName | None) -> "Certainty | None":
    from lakechime_dagster.lineage.graph.reach import Certainty

    return None if kind is None else Certainty[kind.name]


def hit_document(lineage: "AskedLineage", hit: "Hit", facts: "TableFacts") -> dict[str, Any]:
    """One hit as JSON."""
    return {
        "table": hit.table, "layer": hit.layer, "kind": hit.certainty.name.lower(),
        "rows": None if hit.rows is None else hit.rows.name.lower(),
        "columns": [{"name": one.name, "kind": one.certainty.name.lower(), "layer": one.layer} for one in hit.columns],
        "path": path_document(hit.path), **facts_document(lineage, facts),
    }  # fmt: skip


def facts_document(lineage: "AskedLineage", facts: "TableFacts") -> dict[str, Any]:
    """What is known of a table beside its edges, as JSON."""
    return {
        "owners": list(facts.owners), "jobs": list(facts.jobs), "links": dict(facts.links), "last_seen_ts": facts.last_ms,
        "stale": lineage.is_stale(facts),
    }  # fmt: skip


def path_document(path: "Iterable[Step]") -> list[dict[str, Any]]:
    return [{"source": str(step.source), "kinds": list(step.kinds), "target": str(step.target)} for step in path]


def print_hits(lineage: "AskedLineage", found: "Hits", facts: "Mapping[str, TableFacts]", empty: str) -> None:
    """Hits for people, and how many were left out."""
    rows = [(hit.layer, hit.table, hit.certainty.name.lower(), _columns(hit), ", ".join(facts[hit.table].owners),
             _seen(lineage, facts[hit.table]), _way(hit)) for hit in found.hits]  # fmt: skip
    print_table(("layer", "table", "kind", "columns", "owners", "last seen", "by way of"), rows, empty=empty)
    if found.more:
        say(f"… and {count(found.more, 'more table')}; --limit shows them")


def consumer_document(lineage: "AskedLineage", one: "ConsumerHit") -> dict[str, Any]:
    """Who reads and writes nothing, as JSON."""
    who = one.consumer
    return {
        "consumer": who.kind.value, "namespace": who.namespace, "name": who.name, "kind": one.certainty.name.lower(),
        "columns": [str(ref) for ref in one.refs], "last_read_ts": one.last_ms, "active": one.is_active(lineage.now_ms),
        "owners": list(one.owners), "link": one.link,
    }  # fmt: skip


def print_consumers(lineage: "AskedLineage", several: "Sequence[ConsumerHit]") -> None:
    """Who reads and writes nothing, or that it is not known who does."""
    if several:
        rows = [
            (one.consumer.kind.value, one.consumer.name, one.certainty.name.lower(), ", ".join(map(str, one.refs[:4])),
             ", ".join(one.owners), when(one.last_ms) + " (active)" * one.is_active(lineage.now_ms), one.link)
            for one in several
        ]  # fmt: skip
        say(f"\n{count(len(several), 'reader')} that {'writes' if len(several) == 1 else 'write'} nothing:")
        print_table(("reader", "name", "kind", "columns", "owners", "last read", "link"), rows, empty="")
    elif not lineage.read_ways:
        note("not known: who reads it in dashboards or elsewhere, since nobody tells")


def print_unknown(reasons: Iterable[str]) -> None:
    """Why more may be than is shown, beside the answer."""
    for reason in reasons:
        note(f"not known: {reason}")


def _seen(lineage: "AskedLineage", facts: "TableFacts") -> str:
    return when(facts.last_ms) + " (stale)" * lineage.is_stale(facts)


def _columns(hit: "Hit", most: int = 4) -> str:
    names = [one.name for one in hit.columns[:most]] + [f"+{len(hit.columns) - most}"] * (len(hit.columns) > most)
    return ", ".join(names) or "(rows)"


def _way(hit: "Hit") -> str:
    """The tables between the two ends of a path."""
    return " → ".join(dict.fromkeys(step.target.table for step in hit.path[:-1]))
