"""A page of lineage that is served in this process, and what programs and browsers ask of it."""

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakechime_dagster.api.app import Served, build_app
from lakechime_dagster.api.lineage_page import lineage_page
from lakechime_dagster.cli.serve import bound, build_server
from lakechime_dagster.lineage.ingest import LineageIngest
from lakechime_dagster.lineage.service import AskedLineage
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.settings import load_settings
from lakechime_dagster.tables.lake import Lake


@dataclass(frozen=True)
class Reported:
    """What a server answered."""

    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class Page:
    """A server of the page of lineage."""

    platform: Platform
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, path: str, body: bytes | Any = None, **headers: str) -> Reported:
        """A GET, or with a body a POST; `_` in the names of headers is `-`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request("GET" if body is None else "POST", path, sent, given)
            answer = connection.getresponse()
            return Reported(
                answer.status,
                answer.read().decode(),
                {name.lower(): value for name, value in answer.getheaders()},
            )
        finally:
            connection.close()


@contextmanager
def serving_page(
    home: Path, store: Path, lake: Lake, token: str = "", hosts: tuple[str, ...] = ()
) -> Iterator[Page]:
    """The page over a copy of a store, as `lakechime serve` serves it."""
    (home / "dce.sqlite").write_bytes(store.read_bytes())
    platform = open_platform(load_settings(home=home, store_url=""))
    page = lineage_page(lambda: AskedLineage(platform, lake))
    served = Served(ingest=LineageIngest(platform, lake), token=token, routers=(page,), hosts=hosts)
    server = build_server(build_app(served))
    with bound("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield Page(platform, listening.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(30)
