"""`lakechime metrics`: what the store tells of consumers and of streams of events, served for Prometheus."""

import threading
from typing import Annotated

import typer

from lakechime_dagster.cli.context import open_platform
from lakechime_dagster.cli.output import note
from lakechime_dagster.errors import needs


def metrics(
    host: Annotated[str, typer.Option(help="The address to serve at; 0.0.0.0 is all of this machine's.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to serve at.")] = 9464,
) -> None:
    """Serve /metrics for Prometheus from the store, until Ctrl-C; whoever reaches the address can read names of types."""
    with needs("`lakechime metrics`"):
        from lakechime_dagster.api.metrics import serve
    from lakechime_dagster.resources.streams.event_types import event_types
    from lakechime_dagster.store.types.measures import measures

    types = event_types(open_platform())
    server = serve(lambda: measures(types), host, port)
    note(f"lakechime| metrics are at http://{host}:{port}/metrics")
    try:
        threading.Event().wait()
    finally:
        server.shutdown()
        server.server_close()
