"""Fixtures for all tests live in tests/support; they are registered here."""

pytest_plugins = [
    "tests.support.spark",
    "tests.support.postgres",
    "tests.support.stores",
    "tests.support.world",
    "tests.support.cli",
    "tests.support.properties",
    "tests.support.dagster_dev",
]
