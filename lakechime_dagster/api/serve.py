"""Serving the application at an address, which off this machine needs a token."""

import ipaddress
import socket

import uvicorn
from fastapi import FastAPI

from lakechime_dagster.errors import LakeChimeError

MIN_TOKEN = 16  # characters, of which fewer could be guessed


def check_address(host: str, token: str) -> None:
    """Refuse an address that others can reach without a token, or with one that can be guessed.

    Raises:
        LakeChimeError: naming the variable, never its value.
    """
    if token and (len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token):
        raise LakeChimeError(f"LAKECHIME_API_TOKEN is no token; write at least {MIN_TOKEN} ASCII characters without blanks")
    if not token and not is_loopback(host):
        raise LakeChimeError(f"{host} can be reached from other machines; set LAKECHIME_API_TOKEN to a secret, or serve at 127.0.0.1")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens at the address, so that whoever asks afterwards waits instead of being refused.

    Raises:
        LakeChimeError: the address cannot be used.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen()
    except OSError as error:
        remedy = "end what uses it, or choose another one with --host and --port"
        raise LakeChimeError(f"port {port} of {host} cannot be used ({error.strerror}); {remedy}") from None
    return made


def build_server(app: FastAPI) -> uvicorn.Server:
    """A server that logs no request: what is sent may be secret, or personal."""
    return uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=5))
