"""A neighbourhood of data sets as a diagram of Mermaid: values by a line, what only decides by dots, what is not sure by dashes."""

from lakechime_dagster.dce.text import printable
from lakechime_dagster.lineage.graph.neighbourhood import Neighbourhood
from lakechime_dagster.lineage.graph.paths import DECLARED, UNSURE

_ENTITIES = {'"': "#quot;", "<": "#lt;", ">": "#gt;", "#": "#35;", "&": "#amp;", "`": "#96;"}


def diagram(around: Neighbourhood) -> str:
    """The text of a flowchart, from left to right."""
    numbers = {one.table: f"t{number}" for number, one in enumerate(sorted(around.tables, key=lambda one: (one.layer, one.table)))}
    lines = ["flowchart LR", *(f'  {number}["{_shown(table)}"]' for table, number in numbers.items())]
    tables = [one for one in around.links if one.source.column is None and one.target.column is None]
    kinds: dict[tuple[str, str], set[str]] = {}
    for link in tables:
        kinds.setdefault((link.source.table, link.target.table), set()).update(link.kinds)
    for (source, target), several in sorted(kinds.items()):
        lines.append(f"  {numbers[source]} {_arrow(several)} {numbers[target]}")
    if around.more:
        lines.append(f'  more["… and {around.more} more"]')
    return "\n".join(lines) + "\n"


def _arrow(kinds: set[str]) -> str:
    if "direct" in kinds:
        return "-->"
    if kinds & {UNSURE, DECLARED}:
        return "-. not known .->" if UNSURE in kinds else "-. declared .->"
    return "-.->"


def _shown(text: str) -> str:
    return "".join(_ENTITIES.get(character, character) for character in printable(text))
