"""`lakechime lineage`: where columns come from, who reads them, and what a change of the code would hit."""

import typer

from lakechime_dagster.cli import (
    lineage_diff,
    lineage_export,
    lineage_gate,
    lineage_hits,
    lineage_impact,
    lineage_ingest,
    lineage_jobs,
    lineage_logs,
    lineage_people,
    lineage_plan,
    lineage_project,
    lineage_serve,
)

app = typer.Typer(name="lineage", help="Column lineage: where columns come from and who reads them; plan it before any run.")
app.command("upstream")(lineage_hits.upstream)
app.command("downstream")(lineage_hits.downstream)
app.command("impact")(lineage_impact.impact)
app.command("path")(lineage_hits.path)
app.command("readers")(lineage_people.readers)
app.command("owners")(lineage_people.owners)
app.command("jobs")(lineage_jobs.jobs)
app.command("diff")(lineage_diff.diff)
app.command("export")(lineage_export.export)
app.command("plan")(lineage_plan.plan)
app.command("gate")(lineage_gate.gate)
app.command("ingest")(lineage_ingest.ingest)
app.command("logs")(lineage_logs.logs)
app.command("serve")(lineage_serve.serve)
app.command("project")(lineage_project.project)


@app.callback()
def lineage() -> None:
    """Column lineage: where columns come from and who reads them; plan it before any run."""
