"""`lakechime lineage serve`: takes lineage over HTTP, beside the metrics of `lakechime metrics`."""

from typing import Annotated

import typer

from lakechime_dagster.cli.context import declared_lake, open_platform
from lakechime_dagster.cli.output import note
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lineage.notices.acknowledging import checked_key


def serve(
    host: Annotated[str, typer.Option(help="The address to serve at; one that others reach needs LAKECHIME_API_TOKEN.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to serve at.")] = 9465,
) -> None:
    """Serve the page of lineage, POST /lineage for documents of SQL and run events of OpenLineage, and /metrics, until Ctrl-C."""
    try:
        from lakechime_dagster.api.app import Served, build_app
        from lakechime_dagster.api.lineage_page import lineage_page
        from lakechime_dagster.api.notices import acknowledge_router
        from lakechime_dagster.api.serve import bound, build_server, check_address
    except ModuleNotFoundError as error:
        raise LakeChimeError(f"{error.name} is not installed; install lakechime-dagster[api]") from None
    from lakechime_dagster.resources.event_types import event_types
    from lakechime_dagster.resources.lineage_asked import AskedLineage, declared_statements
    from lakechime_dagster.resources.lineage_ingest import lineage_ingest
    from lakechime_dagster.resources.notices import notices
    from lakechime_dagster.store.event_measures import measures
    from lakechime_dagster.store.lineage_network import CurrentNetwork

    platform = open_platform()
    token = platform.settings.api_token
    check_address(host, token)
    types = event_types(platform)
    lake = declared_lake(platform.settings)
    current = CurrentNetwork(platform.store.engine, declared_statements(lake))
    page = lineage_page(lambda at_ms: AskedLineage(platform, lake, at_ms, current))
    key = platform.settings.notice_key
    forms = (acknowledge_router(notices(platform), checked_key(key), platform.store.now),) if key else ()
    served = Served(ingest=lineage_ingest(platform, lake), measures=lambda: measures(types), token=token, routers=(page, *forms))
    app = build_app(served)
    with bound(host, port) as address:
        who = "with a token" if token else "from this machine alone"
        note(f"lakechime| lineage is shown and taken at http://{host}:{port}/lineage, {who}")
        build_server(app).run(sockets=[address])
