"""Statements as text that a person can read and write, and the zoo's dumps beside what they are
known to mean.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from lakechime_dagster.lineage.columns import Names, Source, Statement
from lakechime_dagster.lineage.plan_dump import Dump, dump_of
from lakechime_dagster.lineage.plan_nodes import with_generated
from lakechime_dagster.lineage.plan_statements import statements_of

ZOO = Path(__file__).parents[1] / "zoo"
LAKE = Names(
    tables=("target", "generated", "other", "made", "saved", "parted", "required", "numbered"),
    locations={table: f"/lake/{table}" for table in ("target", "generated", "other", "parted")},
    aliases={"default.*": "*", "ice.zoo.*": "*"},
)
GENERATED = {"generated": {"double_amount": ("amount",)}}
Dumps = tuple[Dump, ...]


@cache
def stored(name: str) -> dict[str, Dumps]:
    """The dumps of one part of the zoo, by shape."""
    return {
        shape: read(dumps)
        for shape, dumps in json.loads((ZOO / f"{name}.json").read_text(encoding="utf-8")).items()
    }


def read(dumps: Mapping[str, object] | Sequence[Mapping[str, object]]) -> Dumps:
    """One dump or several, as the dumper gives them."""
    return tuple(dump_of(dump) for dump in ([dumps] if isinstance(dumps, Mapping) else dumps))


def known(name: str) -> dict[str, str]:
    """What each shape of one part of the zoo is known to mean."""
    blocks = (ZOO / f"{name}.txt").read_text(encoding="utf-8").strip().split("\n\n")
    return {
        block.splitlines()[0]: "\n".join(block.splitlines()[1:])
        for block in blocks
        if not block.startswith("#")
    }


def reported(dumps: Dumps, target: str = "r") -> str:
    """What dumps mean, and what of them is not known; a frame becomes the target."""
    found = statements_of(dumps, LAKE, target)
    statements = [with_generated(one, GENERATED.get(one.target, {})) for one in found.statements]
    lines = [*(said(one) for one in statements), *(f"  not known: {one}" for one in found.unknown)]
    return "\n".join(lines) or "  nothing"


def said(statement: Statement) -> str:
    lines = [
        f"  {one.column}: {_sources(one.sources, one.opaque, one.udfs) or 'constant'}"
        for one in statement.columns
    ]
    rows = _sources(statement.indirect, statement.unknown, statement.udfs)
    lines += [f"  rows: {rows}"] if rows else []
    written = "replaces" if statement.replaces else "writes"
    lines.insert(
        0, f"  {written} {statement.target} from {', '.join(statement.inputs) or 'nothing'}"
    )
    return "\n".join(lines)


def _sources(sources: Iterable[Source], opaque: Iterable[str], udfs: Iterable[str]) -> str:
    found = [
        f"{source.kind}{' masked' if source.is_masking else ''} {source.ref}" for source in sources
    ]
    return ", ".join(
        [*found, *(f"through {code}" for code in udfs), *(f"? {reason}" for reason in opaque)]
    )
