"""`lakechime lineage upstream | downstream | path`: what leads to columns, what they lead to, and by which way."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.lineage.names import (
    At,
    Depth,
    KindName,
    Limit,
    Name,
    OfKind,
    asked,
    certainty,
    hit_document,
    path_document,
    print_hits,
    print_unknown,
)
from lakechime_dagster.cli.options import Json
from lakechime_dagster.cli.output import print_json, print_table, when
from lakechime_dagster.errors import NotFoundError

if TYPE_CHECKING:
    from lakechime_dagster.lineage.columns import ColumnRef
    from lakechime_dagster.lineage.graph.answers import Hits
    from lakechime_dagster.resources.lineage.asked import AskedLineage


def upstream(name: Name, depth: Depth = None, at: At = None, kind: OfKind = None, limit: Limit = 100, as_json: Json = False) -> None:
    """Tell what a table or column comes from."""
    lineage = asked(at)
    ref = lineage.ref(name)
    found = lineage.hits([ref], upstream=True, depth=depth, kind=certainty(kind), limit=limit)
    unknown = lineage.unknown([ref], upstream=True)
    if as_json:
        print_json(hits_document(lineage, [ref], found, unknown))
        return
    _print(lineage, found, "nothing more is known" if unknown else f"{ref} comes from nothing: its values are constants", kind)
    print_unknown(unknown)


def downstream(name: Name, depth: Depth = None, at: At = None, kind: OfKind = None, limit: Limit = 100, as_json: Json = False) -> None:
    """Tell what a table or column leads to."""
    lineage = asked(at)
    ref = lineage.ref(name)
    found = lineage.hits([ref], depth=depth, kind=certainty(kind), limit=limit)
    unknown = lineage.unknown([ref])
    if as_json:
        print_json(hits_document(lineage, [ref], found, unknown))
        return
    _print(lineage, found, f"nothing reads {ref}, as far as runs told since {when(lineage.since_ms) or 'ever'}", kind)
    print_unknown(unknown)


def path(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A table or column where the way begins.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="A table or column where it ends.")],
    at: At = None,
    kind: Annotated[KindName, typer.Option("--kind", help="By nothing less sure than this.")] = KindName.UNSURE,
    as_json: Json = False,
) -> None:
    """Tell a shortest way from one table or column to another, with how each step leads on."""
    lineage = asked(at)
    start, end = lineage.ref(source), lineage.ref(target)
    if start.table == end.table:
        raise parse.wrong("TO", f"{target} is of the table where the way begins; name another one")
    found = lineage.path(start, end, certainty(kind) or certainty(KindName.UNSURE))  # pyright: ignore[reportArgumentType]
    if found is None:
        raise NotFoundError(f"no way leads from {start} to {end}, as far as is known")
    if as_json:
        print_json({"from": str(start), "to": str(end), "path": path_document(found)})
        return
    print_table(("from", "by", "to"), [(step.source, ", ".join(step.kinds), step.target) for step in found], empty="")


def hits_document(lineage: "AskedLineage", refs: "list[ColumnRef]", found: "Hits", unknown: tuple[str, ...]) -> dict[str, Any]:
    facts = lineage.facts(one.table for one in found.hits)
    return {
        "of": [str(ref) for ref in refs], "at_ts": lineage.at_ms, "recorded_since_ts": lineage.since_ms, "not_known": list(unknown),
        "hits": [hit_document(lineage, one, facts[one.table]) for one in found.hits], "more": found.more,
    }  # fmt: skip


def _print(lineage: "AskedLineage", found: "Hits", empty: str, kind: KindName | None) -> None:
    shown = f"nothing of kind {kind.value}" if kind is not None else empty
    print_hits(lineage, found, lineage.facts(one.table for one in found.hits), shown)
