"""What a client knows about the warm driver before it attaches."""

import os
import socket
import stat
import threading
from pathlib import Path

from lakechime_dagster.spark.driver import (
    Unattached,
    _sign_in,
    attach,
    attachments,
    clients_folder,
    present_clients,
    probe,
)
from lakechime_dagster.spark.jvm import Gateway, WarmFile, warm_file
from tests.support.spark import small_settings

DEAD_PID = 2**22 + 1  # above what Linux gives out


def make_file(**others: object) -> WarmFile:
    values = {
        "host_pid": os.getpid(),
        "generation": 1,
        "revision": "r",
        "spark_version": "4.1.3",
        "is_up": True,
        "secret": "s3cret",
    }
    return WarmFile(**(values | others))  # type: ignore[arg-type]


def test_the_connection_file_is_for_its_owner_only(tmp_path: Path) -> None:
    make_file().write(tmp_path)
    assert stat.S_IMODE(warm_file(tmp_path).stat().st_mode) == 0o600
    assert WarmFile.read(tmp_path) == make_file()
    assert [path.name for path in (tmp_path / "spark").iterdir()] == ["warm.json"]


def test_the_secret_is_not_in_the_text_of_the_file_as_a_value() -> None:
    assert "s3cret" not in repr(make_file())
    assert "s3cret" not in repr(Gateway(1, "s3cret"))


def test_a_file_of_another_kind_is_no_file(tmp_path: Path) -> None:
    warm_file(tmp_path).parent.mkdir()
    warm_file(tmp_path).write_text('{"port": 1}')
    assert WarmFile.read(tmp_path) is None


def test_without_a_host_there_is_nothing_to_attach_to(tmp_path: Path) -> None:
    assert attach(tmp_path, small_settings("warm")) == Unattached("no warm driver runs")


def test_a_dead_host_is_named(tmp_path: Path) -> None:
    make_file(host_pid=DEAD_PID).write(tmp_path)
    assert attach(tmp_path, small_settings("warm")) == Unattached(
        f"the warm driver of process {DEAD_PID} has died"
    )


def test_a_host_of_other_settings_is_not_attached_to(tmp_path: Path) -> None:
    make_file().write(tmp_path)
    found = attach(tmp_path, small_settings("warm"))
    assert isinstance(found, Unattached)
    assert "other settings or versions" in found.reason


def test_a_closed_port_cannot_be_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert probe(Gateway(port, "secret")) == "cannot be reached"


def test_a_port_that_speaks_otherwise_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(
            target=answer, args=(server, b"HTTP/1.1 400 Bad Request\r\n"), daemon=True
        ).start()
        assert probe(Gateway(server.getsockname()[1], "secret")) == "refused our secret"


def test_a_client_is_present_until_it_leaves_and_is_counted_for_good(tmp_path: Path) -> None:
    folder = clients_folder(tmp_path, 1, 1)
    presence = _sign_in(folder)
    assert (present_clients(folder), attachments(folder)) == (1, 1)
    presence.end()
    assert (present_clients(folder), attachments(folder)) == (0, 1)


def test_what_a_killed_client_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "client-1-x"
    left.touch()
    assert present_clients(tmp_path) == 0
    assert not left.exists()


def answer(server: socket.socket, line: bytes) -> None:
    channel, _ = server.accept()
    with channel:
        channel.recv(100)
        channel.sendall(line)
