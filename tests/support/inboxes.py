"""Servers that take what is sent to people: mails over SMTP, and messages to a webhook."""

import email
import email.policy
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from tests.support.processes import free_port


@dataclass
class MailServer:
    """A server that takes mails, but none for those that it refuses."""

    port: int
    mails: list[tuple[list[str], EmailMessage]] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)

    def url(self, *recipients: str) -> str:
        """The URL by which apprise mails these."""
        return f"mailto://127.0.0.1:{self.port}?from=lake@example.com&to={','.join(recipients)}&mode=insecure"

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refused:
            return "550 nobody of that name is here"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        content = envelope.content
        assert isinstance(content, bytes)
        message = cast(EmailMessage, email.message_from_bytes(content, policy=email.policy.default))
        self.mails.append(([str(one) for one in envelope.rcpt_tos], message))
        return "250 OK"

    @property
    def texts(self) -> list[str]:
        """The bodies, as plain text; a mail that is of anything else is reported by its type."""
        return [
            one.get_content().rstrip()
            if one.get_content_type() == "text/plain"
            else one.get_content_type()
            for _, one in self.mails
        ]


@dataclass
class Webhook:
    """A server that takes what apprise sends to `json://`; while it is `closed` it refuses."""

    url: str
    reported: list[tuple[str, str]] = field(default_factory=list)
    closed: bool = False


@pytest.fixture
def mail_server() -> Iterator[MailServer]:
    server = MailServer(free_port())
    controller = Controller(server, hostname="127.0.0.1", port=server.port)
    controller.start()
    yield server
    controller.stop()


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not found.closed:
                found.reported.append((message["title"], message["message"]))
            self.send_response(503 if found.closed else 200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Webhook(f"json://127.0.0.1:{server.server_port}/secret-path")
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield found
    server.shutdown()
    server.server_close()
