"""`lakechime lineage serve`: takes lineage over HTTP, beside the metrics of `lakechime metrics`."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from lakechime_dagster.cli.context import declared_lake, open_platform
from lakechime_dagster.cli.output import note
from lakechime_dagster.errors import LakeChimeError, needs
from lakechime_dagster.settings import Settings

if TYPE_CHECKING:
    from lakechime_dagster.resources.lineage.ready import ReadyNetwork


def serve(
    host: Annotated[str, typer.Option(help="The address to serve at; one that others reach needs LAKECHIME_API_TOKEN.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to serve at.")] = 9465,
) -> None:
    """Serve the page of lineage, POST /lineage for documents of SQL and run events of OpenLineage, and /metrics, until Ctrl-C."""
    with needs("`lakechime lineage serve`", extra="api"):
        from lakechime_dagster.api.app import Served, build_app
        from lakechime_dagster.api.lineage_page import lineage_page, rehearse
        from lakechime_dagster.api.serve import bound, build_server, check_address
    from lakechime_dagster.resources.lineage.asked import AskedLineage, declared_statements
    from lakechime_dagster.resources.lineage.ingest import lineage_ingest
    from lakechime_dagster.resources.lineage.ready import ReadyNetwork
    from lakechime_dagster.resources.streams.event_types import event_types
    from lakechime_dagster.store.lineage.network import CurrentNetwork
    from lakechime_dagster.store.types.measures import measures

    platform = open_platform()
    token = platform.settings.api_token
    check_address(host, token)
    types = event_types(platform)
    lake = declared_lake(platform.settings)
    ready = ReadyNetwork(CurrentNetwork(platform.store.engine, declared_statements(lake), platform.ledger.deployment))
    page = lineage_page(lambda at_ms: AskedLineage(platform, lake, at_ms, ready))
    served = Served(
        ingest=lineage_ingest(platform, lake),
        measures=lambda: measures(types),
        token=token,
        routers=(page,),
        hosts=_hosts(platform.settings),
    )
    app = build_app(served)
    with bound(host, port) as address:
        who = "with a token" if token else "from this machine alone"
        note(f"lakechime| lineage is shown and taken at http://{host}:{port}/lineage, {who}")
        with _keeping(ready, lambda: rehearse(AskedLineage(platform, lake, None, ready))):
            build_server(app).run(sockets=[address])


@contextmanager
def _keeping(ready: "ReadyNetwork", rehearse: Callable[[], None]) -> Iterator[None]:
    """The network follows the store beside the server, and a first question is answered."""
    stop = threading.Event()

    def work() -> None:
        with suppress(LakeChimeError):  # whoever asks then is told
            rehearse()
        ready.keep(stop)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=1)


def _hosts(settings: Settings) -> set[str]:
    """The names under which people reach the server, as far as settings say so."""
    name = urlsplit(settings.lineage_url).hostname
    return {name} if name else set()
