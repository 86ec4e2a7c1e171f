"""What is imported and collected stays until a test process ends: whoever looks for garbage need
not look through it each time.
"""

import gc
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Looks for none while tests are collected, and never again at what is there then."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
