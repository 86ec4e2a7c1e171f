"""`lakechime lineage export`: what is known as JSON of OpenLineage, or as a diagram of Mermaid."""

from typing import TYPE_CHECKING, Annotated

import typer

from lakechime_dagster.cli.lineage.names import At, asked
from lakechime_dagster.cli.options import MAX_LIMIT, Json
from lakechime_dagster.cli.output import print_json
from lakechime_dagster.compat import StrEnum
from lakechime_dagster.errors import NotFoundError

if TYPE_CHECKING:
    from lakechime_dagster.resources.lineage.asked import AskedLineage


class Form(StrEnum):
    """What is written."""

    OPENLINEAGE = "openlineage"
    MERMAID = "mermaid"


Table = Annotated[str | None, typer.Argument(metavar="[TABLE]", help="A table, with what is around it; all unless given.")]
As = Annotated[Form, typer.Option("--format", help="JobEvents of OpenLineage, or a flowchart of Mermaid.")]
Steps = Annotated[int, typer.Option("--depth", min=1, max=MAX_LIMIT, help="So many steps up and down from the table.")]


def export(table: Table = None, form: As = Form.OPENLINEAGE, depth: Steps = 2, at: At = None, as_json: Json = False) -> None:
    """Write what runs told as events of OpenLineage, or what is known as a flowchart of Mermaid."""
    lineage = asked(at)
    name = None if table is None else lineage.ref(table).table
    if form is Form.OPENLINEAGE:
        print_json({"events": lineage.job_events(name, depth)})
        return
    text = _mermaid(lineage, name, depth)
    if as_json:
        print_json({"mermaid": text})
    else:
        print(text, end="")


def _mermaid(lineage: "AskedLineage", table: str | None, depth: int) -> str:
    from lakechime_dagster.lineage.graph.mermaid import diagram
    from lakechime_dagster.lineage.graph.neighbourhood import everything

    if not lineage.network.tables:
        raise NotFoundError("no run has recorded lineage yet, and the lake declares no table: there is nothing to draw")
    if table is None:
        return diagram(everything(lineage.network))
    return diagram(lineage.around(table, up=depth, down=depth, limit=MAX_LIMIT))
