"""Events of a commit are made in one place: what a table's own log says, whoever asks."""

import ast
from pathlib import Path

import lakechime_dagster

PACKAGE = Path(lakechime_dagster.__path__[0])


def makers_of_commit_events(source: str) -> list[int]:
    """The lines that construct an event with a snapshot."""
    if "snapshot_id" not in source:  # most files, which need not be parsed
        return []
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    made = [call for call in calls if getattr(call.func, "id", getattr(call.func, "attr", "")) == "DataChangeEvent"]
    return [call.lineno for call in made if "snapshot_id" in {keyword.arg for keyword in call.keywords}]


def test_only_the_capture_of_a_table_makes_events_with_a_snapshot() -> None:
    makers = {file.relative_to(PACKAGE).as_posix() for file in PACKAGE.rglob("*.py") if makers_of_commit_events(file.read_text())}
    assert makers == {"formats/delta.py"}


def test_a_second_maker_would_be_found() -> None:
    assert makers_of_commit_events('x = event.DataChangeEvent(table="a",\n  snapshot_id="1")') == [1]
