"""Of which types Dagster is told after a step, and how a person sees what it did for each."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from lakechime_dagster.assets.events import types_to_tell
from lakechime_dagster.dce.events import SnapshotId
from lakechime_dagster.silver.results import TypeResult
from lakechime_dagster.silver.schema import KnownType
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, Committed, ConsumerId

TOLD_EVERY_MS = 300_000


def result(kind: str, *, commit: bool = True, **fields: Any) -> TypeResult:
    commit_metadata = CommitMetadata(consumer=ConsumerId("test", "shop", kind), step=1, attempt=1, execution_id="e", end=Checkpoint())
    commits = (Committed(version=SnapshotId("7"), commit_metadata=commit_metadata),) if commit else ()
    return TypeResult(type=kind, table=kind, start=0, end=1, commits=commits, **fields)


def to_tell(known: Mapping[str, KnownType], *results: TypeResult, now_ms: int = TOLD_EVERY_MS) -> list[str]:
    return [*types_to_tell(known, results, now_ms, dt.timedelta(milliseconds=TOLD_EVERY_MS))]


def test_mere_rows_are_told_when_the_last_word_is_old() -> None:
    buy = KnownType(type="buy", table="buy", told_ts=1)
    assert to_tell({"buy": buy}, result("buy")) == []
    assert to_tell({"buy": buy}, result("buy"), now_ms=TOLD_EVERY_MS + 1) == ["buy"]
    assert to_tell({"buy": buy}, result("buy", commit=False), now_ms=TOLD_EVERY_MS + 1) == []
