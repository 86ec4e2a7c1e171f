"""A disk without space is told in one sentence, and what was registered before is kept."""

from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from lakechime_dagster.dce.contract import EventQuery
from lakechime_dagster.dce.engine import open_engine
from lakechime_dagster.dce.store import SqlDCEStore
from lakechime_dagster.errors import StoreUnreachableError
from tests.factories import make_event


@pytest.fixture
def full_engine(tmp_path: Path, upgraded_sqlite: Path) -> Engine:
    """A store whose database may not grow by one page more: SQLite then says what it says of a full disk."""
    path = tmp_path / "dce.sqlite"
    path.write_bytes(upgraded_sqlite.read_bytes())
    engine = open_engine(f"sqlite:///{path}")
    event.listen(engine, "connect", lambda connection, record: connection.execute("PRAGMA max_page_count = 1"))
    return engine


def test_a_full_disk_is_told_in_one_sentence_and_keeps_what_is_there(full_engine: Engine) -> None:
    store = SqlDCEStore(full_engine)
    with pytest.raises(StoreUnreachableError) as refused:
        store.register([make_event(snapshot_id=str(number), tags={"x": "y" * 4_000}) for number in range(400)])
    assert str(refused.value).endswith("has no space left on its disk; free some and try again.")
    assert not [internal for internal in ("sqlite3", "Traceback", "sqlalchemy", "\n") if internal in str(refused.value)]
    assert store.fetch(EventQuery()) == []
    full_engine.dispose()
