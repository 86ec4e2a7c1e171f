"""`lakechime lineage`: where columns come from, who reads them, and what a change of the code would hit."""

import typer

from lakechime_dagster.cli.lineage import ask, exchange, plan, serve

app = typer.Typer(name="lineage", help="Column lineage: where columns come from and who reads them; plan it before any run.")
for command in (ask.upstream, ask.downstream, ask.path, ask.impact, ask.readers, plan.plan, plan.check,
                exchange.ingest, exchange.export, serve.serve):  # fmt: skip
    app.command()(command)


@app.callback()
def lineage() -> None:
    """Column lineage: where columns come from and who reads them; plan it before any run."""
