"""Answers access requests: the rows of subjects, in one pass over each table that holds them."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.errors import InvalidValueError, LakeChimeError
from lakechime_dagster.governance.data import PersonalData
from lakechime_dagster.governance.requests import OutOfReach, Searched, Subject, out_of_reach, searched_tables
from lakechime_dagster.governance.tags import Tagged
from lakechime_dagster.lineage.service import AskedLineage
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.silver.requests import event_types
from lakechime_dagster.tables.lake import Lake

RESCUED = "_rescued"  # of the table of a type: values that have no column
SUMMARY = "summary.json"


@dataclass(frozen=True, kw_only=True)
class SearchedTable:
    """A table that was searched: its rows of subjects, of how many, and the rows in which something cannot be parsed."""

    table: str
    rows: int
    subjects: int
    unreadable: int


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was found, without a value of anybody; `out_of_reach` by the numbers of the subjects' lines."""

    subjects: int
    tables: tuple[SearchedTable, ...]
    out_of_reach: Mapping[OutOfReach, tuple[int, ...]]

    def document(self) -> dict[str, Any]:
        """As it is printed and kept."""
        return {
            "subjects": self.subjects,
            "rows": sum(one.rows for one in self.tables),
            "tables": [asdict(one) for one in self.tables],
            "out_of_reach": [{**asdict(one), "lines": list(lines)} for one, lines in self.out_of_reach.items()],
        }


@dataclass
class Export:
    """The files of one answer, each written row by row."""

    folder: Path
    stack: ExitStack
    files: dict[str, TextIO] = field(default_factory=dict)

    def add(self, table: str, subject: int, by: tuple[str, ...], row: str) -> None:
        """A row of a table, which is a JSON text, with the subject whose it is, and the columns that say so."""
        if table not in self.files:
            self.files[table] = self.stack.enter_context(self._open(f"{table}.jsonl"))
        head = json.dumps({"subject": subject, "by": by}, ensure_ascii=False)
        self.files[table].write(f'{head[:-1]}, "row": {row}}}\n')

    def summary(self, document: Mapping[str, Any]) -> None:
        """What was found and what was not."""
        with self._open(SUMMARY) as file:
            file.write(json.dumps(document, ensure_ascii=False, indent=2) + "\n")

    def _open(self, name: str) -> TextIO:
        number = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        return open(number, "w", encoding="utf-8", newline="\n")  # noqa: PTH123 - of a file that only its owner can open from the first


def check_new(folder: Path) -> None:
    """See to it that a folder can be made, or exists and is empty.

    Raises:
        InvalidValueError: naming the folder and the remedy.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InvalidValueError("folder", str(folder), "is no folder; name one that does not exist yet")
    if folder.exists() and any(folder.iterdir()):
        raise InvalidValueError("folder", str(folder), "is not empty; name one that does not exist yet")
    if not folder.absolute().parent.is_dir():
        raise InvalidValueError("folder", str(folder), f"cannot be made, as {folder.absolute().parent} is no folder; make that first")


@contextmanager
def exporting(folder: Path) -> Iterator[Export]:
    """An export whose folder exists once all went well, for its owner alone; where something did not, nothing is left of it.

    Raises:
        LakeChimeError: it cannot be written.
    """
    check_new(folder)
    whole = folder.absolute()
    try:
        made = Path(tempfile.mkdtemp(prefix=f".{whole.name}.", dir=whole.parent))  # which only its owner may enter
        try:
            with ExitStack() as stack:
                yield Export(made, stack)
            made.rename(whole)  # in the place of an empty one
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        raise LakeChimeError(f"{folder} cannot be written: {error.strerror or type(error).__name__}") from None


def answer(lake: Lake, platform: Platform, subjects: Sequence[Subject], export: Export, log: Callable[[str], None]) -> Answer:
    """Find the rows of subjects and export them.

    Args:
        lake: The lake.
        platform: Where its tables are.
        subjects: Who asks.
        export: Takes the rows.
        log: Told which Spark is used.

    Raises:
        TableUnreadableError: naming the table that cannot be searched.
    """
    tagged = PersonalData(platform, lake).found(AskedLineage(platform, lake).network)
    searched = _searched(lake, platform, tagged)
    tables = _search(lake, platform, searched, subjects, export, log)
    lines: dict[OutOfReach, list[int]] = {}
    unread = _unread(lake, tagged, searched)
    for given in sorted({one.categories for one in subjects}, key=sorted):  # who give the same categories are found at the same places
        for place in out_of_reach(tagged, given, unread):
            lines.setdefault(place, []).extend(one.line for one in subjects if one.categories == given)
    return Answer(
        subjects=len(subjects), tables=tuple(tables), out_of_reach={one: tuple(sorted(several)) for one, several in lines.items()}
    )


def _searched(lake: Lake, platform: Platform, tagged: Sequence[Tagged]) -> list[Searched]:
    """The tables to search that exist."""
    types = {
        f"{one.home or group.name}.{one.table}": frozenset(tag.category for tag in group.personal.values())
        for group in lake.groups
        if group.personal
        for one in event_types(platform).types(group.name).values()
    }
    others = {table.name for table in lake.tables if table.format is not TableFormat.DELTA}
    return [
        one
        for one in searched_tables(lake, tagged, types, RESCUED)
        if one.table not in others and platform.log_at(_location(lake, platform, one.table), one.table).exists()
    ]


def _location(lake: Lake, platform: Platform, table: str) -> str:
    """Where a table lies, be it declared, beside one that is, or of a type."""
    declared = {one.name: one.location for one in lake.tables}
    if table in declared:
        return platform.location(table, declared[table])
    outer = max((name for name in declared if table.startswith(f"{name}__")), key=len, default=None)
    if outer is None:
        return platform.location(table)
    return platform.location(outer, declared[outer]).rstrip("/") + table.removeprefix(outer)


def _unread(lake: Lake, tagged: Sequence[Tagged], searched: Sequence[Searched]) -> dict[str, str]:
    """Why tables with personal data cannot be searched."""
    ours = {table.name for table in lake.tables} | {one.table for one in searched}
    unread = {one.ref.table: "it is outside the lake" for one in tagged if one.ref.table not in ours}
    return unread | {
        table.name: f"it is a table of {table.format}: only Delta tables are searched"
        for table in lake.tables
        if table.format is not TableFormat.DELTA
    }


def _search(
    lake: Lake, platform: Platform, searched: Sequence[Searched], subjects: Sequence[Subject], export: Export, log: Callable[[str], None]
) -> list[SearchedTable]:
    from lakechime_dagster.governance.spark_search import NOBODY, keys_frame, matches
    from lakechime_dagster.spark.driver import open_driver  # only who asks for this needs Spark

    settings, tables = platform.settings, list[SearchedTable]()
    with open_driver(settings.spark, settings.home, jars=settings.jars, log=log) as driver:
        keys = keys_frame(driver.spark, subjects)
        for one in searched:
            found, rows, unreadable = set[int](), 0, 0
            for match in matches(keys, one, _location(lake, platform, one.table)):
                if match.subject == NOBODY:
                    unreadable = match.rows
                    continue
                export.add(one.table, match.subject, match.by, match.row)
                found.add(match.subject)
                rows += 1
            tables.append(SearchedTable(table=one.table, rows=rows, subjects=len(found), unreadable=unreadable))
    return tables
