"""A lock between processes."""

from pathlib import Path

import pytest

from lakechime_dagster.lock import locked


def test_a_held_lock_is_waited_for_no_longer_than_asked(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path), pytest.raises(TimeoutError), locked(path, 0.05):
        pytest.fail("two holders")
