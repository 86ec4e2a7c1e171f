"""`lakechime lineage`: where columns come from, who reads them, and what a change of the code would hit."""

import typer

from lakechime_dagster.cli.lineage import diff, export, gate, hits, impact, ingest, jobs, logs, people, plan, project, serve

app = typer.Typer(name="lineage", help="Column lineage: where columns come from and who reads them; plan it before any run.")
app.command("upstream")(hits.upstream)
app.command("downstream")(hits.downstream)
app.command("impact")(impact.impact)
app.command("path")(hits.path)
app.command("readers")(people.readers)
app.command("owners")(people.owners)
app.command("jobs")(jobs.jobs)
app.command("diff")(diff.diff)
app.command("export")(export.export)
app.command("plan")(plan.plan)
app.command("gate")(gate.gate)
app.command("ingest")(ingest.ingest)
app.command("logs")(logs.logs)
app.command("serve")(serve.serve)
app.command("project")(project.project)


@app.callback()
def lineage() -> None:
    """Column lineage: where columns come from and who reads them; plan it before any run."""
