"""What a test does when a service it needs cannot be had: a skip on a laptop, a failure in CI."""

import os
from typing import NoReturn

import pytest


def missing(what: str, remedy: str) -> NoReturn:
    """Ends a test; the remedy names the command that enables it."""
    reason = f"{what}; {remedy}"
    if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
