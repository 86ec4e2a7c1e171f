"""Fixtures for all tests live in tests/support; they are registered here."""

import signal

pytest_plugins = [
    "tests.support.garbage",
    "tests.support.spark",
    "tests.support.postgres",
    "tests.support.metastore",
    "tests.support.rest_catalog",
    "tests.support.stack",
    "tests.support.stores",
    "tests.support.topics",
    "tests.support.world",
    "tests.support.cli",
    "tests.support.inboxes",
    "tests.support.home",
    "tests.support.properties",
    "tests.support.tiers",
]


def pytest_configure() -> None:
    """Started in the background of a shell, the tests would hand an ignored SIGINT on to everything
    that they interrupt.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
