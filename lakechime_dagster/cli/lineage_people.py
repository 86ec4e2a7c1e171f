"""`lakechime lineage readers | owners`: who reads a table or column itself, and whose tables a change of columns hits."""

from lakechime_dagster.cli.lineage_names import (
    At,
    Depth,
    Name,
    Names,
    OfKind,
    asked,
    certainty,
    hit_document,
    print_hits,
    print_unknown,
)
from lakechime_dagster.cli.options import Json
from lakechime_dagster.cli.output import count, print_json, print_table, say, when
from lakechime_dagster.lineage.facts import by_owner


def readers(name: Name, at: At = None, kind: OfKind = None, as_json: Json = False) -> None:
    """Tell who reads a table or column itself, and since when reads are recorded."""
    lineage = asked(at)
    ref = lineage.ref(name)
    found = lineage.hits([ref], depth=1, kind=certainty(kind))
    facts, unknown = lineage.facts(one.table for one in found.hits), lineage.unknown([ref])
    if as_json:
        hits = [hit_document(lineage, one, facts[one.table]) for one in found.hits]
        print_json({"of": str(ref), "recorded_since_ts": lineage.since_ms, "readers": hits, "not_known": list(unknown)})
        return
    print_hits(lineage, found, facts, f"nothing reads {ref}")
    say(f"Reads are recorded since {when(lineage.since_ms)}." if lineage.since_ms is not None else "No read is recorded yet.")
    print_unknown(unknown)


def owners(names: Names, depth: Depth = None, at: At = None, kind: OfKind = None, as_json: Json = False) -> None:
    """Tell whose tables a change of columns hits, and which of those hit belong to nobody."""
    lineage = asked(at)
    refs = [lineage.ref(name) for name in names]
    found = lineage.hits(refs, depth=depth, kind=certainty(kind))
    facts = lineage.facts(one.table for one in found.hits)
    owned = by_owner(facts, (one.table for one in found.hits))
    ownerless = owned.pop("", ())
    if as_json:
        several = [{"owner": owner, "tables": list(tables)} for owner, tables in owned.items()]
        print_json({"of": [str(ref) for ref in refs], "owners": several, "without_owner": list(ownerless)})
        return
    print_table(("owner", "tables"), [(owner, ", ".join(tables)) for owner, tables in owned.items()], empty="nobody's tables are hit")
    if ownerless:
        say(f"{count(len(ownerless), 'table')} without an owner: {', '.join(ownerless)}")
