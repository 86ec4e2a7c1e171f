"""Access requests: the subjects who ask, where their values are searched, and the files of what is
found.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.errors import InvalidValueError, LakeChimeError
from lakechime_dagster.governance.data import PersonalData
from lakechime_dagster.governance.tags import Reach, Tagged
from lakechime_dagster.lineage.service import AskedLineage
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.silver.requests import event_types
from lakechime_dagster.tables.cdc import STATE, CDCTable
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.names import folded
from lakechime_dagster.tables.options import column_of
from lakechime_dagster.tables.tables import LakeTable

MAX_SUBJECTS = 100_000
MAX_LINE = 65_536  # bytes
MAX_SHOWN = 10  # wrong lines in a message
QUARANTINE = "__quarantine"
ANYWHERE = "$.."  # leads to a field of JSON at any depth


class SubjectsRefusedError(LakeChimeError):
    """Lines are no subjects; they are named by their numbers, as what they hold is personal."""


@dataclass(frozen=True)
class Subject:
    """One subject: the number of its line, from 1 on, and its values by category, in the order of
    these.
    """

    line: int
    values: tuple[tuple[str, str], ...] = field(repr=False)

    @property
    def categories(self) -> frozenset[str]:
        return frozenset(category for category, _ in self.values)


class TaggedPath(NamedTuple):
    """A column, or a path into one: a field of a struct by its dotted name, a path in a JSON text
    as `payload:$.user.email`, where `$..email` is a field of that name at any depth.
    """

    name: str
    category: str


@dataclass(frozen=True, kw_only=True)
class Searched:
    """A table in which subjects are searched; a row is theirs if one of the paths has a value of
    theirs.

    `texts` are columns that hold JSON: rows in which one cannot be parsed are counted.
    """

    table: str
    paths: tuple[TaggedPath, ...]
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, order=True)
class OutOfReach:
    """A column with personal data, or with None as its column a whole table, in which a subject is
    not found, and why.
    """

    table: str
    column: str | None
    category: str
    why: str


def read_subjects(lines: Iterable[bytes], categories: Collection[str]) -> tuple[Subject, ...]:
    """The subjects of all lines but empty ones, or none at all.

    Raises:
        SubjectsRefusedError: naming the lines that are none, and why.
    """
    found, wrong = list[Subject](), list[str]()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(Subject(number, _values(line, categories)))
        except _LineError as problem:
            wrong.append(f"line {number} {problem}")
    if wrong:
        more = f"; and {len(wrong) - MAX_SHOWN:,} lines more" if len(wrong) > MAX_SHOWN else ""
        raise SubjectsRefusedError(f"nobody was looked for: {'; '.join(wrong[:MAX_SHOWN])}{more}")
    if not found:
        example = '{"email": …}'
        raise SubjectsRefusedError(
            f"no subject was given on standard input: write a line of JSON for each, such as "
            f"{example}"
        )
    if len(found) > MAX_SUBJECTS:
        raise SubjectsRefusedError(
            f"{len(found):,} subjects are more than {MAX_SUBJECTS:,}: ask for them by parts"
        )
    return tuple(found)


def searched_tables(
    lake: Lake, tagged: Iterable[Tagged], types: Mapping[str, Collection[str]], rescued: str
) -> tuple[Searched, ...]:
    """The tables to search: those of the lake with tagged columns, and those beside them with the
    same rows.

    Args:
        lake: The lake; `tagged` columns of other tables are left out.
        tagged: The columns that personal data reaches.
        types: The categories of the tables of events' types.
        rescued: Their column for values without a column.
    """
    paths: dict[str, list[TaggedPath]] = {}
    for one in tagged:
        if (
            one.ref.column is not None
            and not one.ref.column.startswith("$")
            and one.reach is Reach.PERSONAL
        ):
            paths.setdefault(one.ref.table, []).append(TaggedPath(one.ref.column, one.category))
    messages = {table.bronze.name for table in lake.tables if isinstance(table, CDCTable)}
    streams = {group.stream.table.name for group in lake.groups}
    found: list[Searched] = []
    for table in lake.tables:
        own = tuple(paths.get(table.name, ()))
        if not own or table.name in messages or table.name in types:
            continue
        texts = {path.name.partition(":")[0] for path in own if ":" in path.name} | (
            {"payload"} if table.name in streams else set()
        )
        found.append(Searched(table=table.name, paths=own, texts=tuple(sorted(texts))))
        if isinstance(table, LakeTable):
            found.append(_refused_rows(table.name, own))
        elif isinstance(table, CDCTable):
            found += _beside(table, own)
    for name, categories in types.items():
        own = (
            *paths.get(name, ()),
            *(TaggedPath(rescued, category) for category in sorted(categories)),
        )
        found.append(Searched(table=name, paths=own, texts=(rescued,)))
    return tuple(sorted(found, key=lambda one: one.table))


def out_of_reach(
    tagged: Iterable[Tagged], given: Collection[str], unread: Mapping[str, str]
) -> tuple[OutOfReach, ...]:
    """Where personal data is, or may be, in which a subject who gives values of these categories is
    not found.

    A column of a category without a given value needs none where the rows of its table are found by
    another column.

    Args:
        tagged: The columns that personal data reaches.
        given: The categories of which the subject gives a value.
        unread: Tables that cannot be searched, with the reason.
    """
    there = [
        one
        for one in tagged
        if one.reach is not Reach.INDIRECT and not (one.ref.column or "").startswith("$")
    ]
    covered = {
        one.ref.table
        for one in there
        if one.reach is Reach.PERSONAL and one.ref.column and one.category in given
    }
    found = set[OutOfReach]()
    for one in there:
        if one.ref.table in unread:
            why = unread[one.ref.table]
        elif one.category not in given:
            why = "" if one.ref.table in covered else f"no value of {one.category} is given"
        elif one.reach is Reach.UNSURE or one.ref.column is None:
            why = "it is unknown which columns hold values"
        elif one.reach is Reach.PSEUDONYM:
            why = "hashes and masks are not looked for"
        elif one.reach is Reach.DERIVED:
            why = "values that a function has changed are not looked for"
        elif _is_of_part(one):
            why = "it may hold a whole struct or JSON text, which is compared as one value"
        else:
            why = ""
        if why:
            found.add(
                OutOfReach(
                    table=one.ref.table, column=one.ref.column, category=one.category, why=why
                )
            )
    return tuple(sorted(found, key=lambda one: (one.table, one.column or "", one.category)))


def _is_of_part(one: Tagged) -> bool:
    """Whether a tag of a part of a column has reached a whole one, such as a copy."""
    origin, name = one.path[0].column or "", one.ref.column or ""
    return (
        not one.is_source
        and column_of(name) == name
        and not origin.startswith("$")
        and column_of(origin) != origin
    )


def _refused_rows(table: str, paths: Iterable[TaggedPath]) -> Searched:
    """Rows of a computed table that it refused, as JSON texts."""
    within = tuple(path._replace(name=f"row:$.{path.name.replace(':$', '')}") for path in paths)
    return Searched(table=table + QUARANTINE, paths=within, texts=("row",))


def _beside(table: CDCTable, paths: Iterable[TaggedPath]) -> Iterator[Searched]:
    """The messages of a CDC table, its state and what it refused; a field may stand anywhere in
    them.
    """
    source_names = {folded(here): name for name, here in table.names.items()}
    keys = {folded(one) for one in table.keys}
    messages, state, refused = list[TaggedPath](), list[TaggedPath](), list[TaggedPath]()
    for path in paths:
        column = column_of(path.name)
        for name in sorted({column, source_names.get(folded(column), column)}):
            anywhere = f"{ANYWHERE}{name}"
            messages += [
                path._replace(name=f"value:{anywhere}"),
                path._replace(name=f"key:{anywhere}"),
            ]
            state.append(path._replace(name=f"columns:{anywhere}"))
            refused.append(path._replace(name=f"row:{anywhere}"))
        if folded(column) in keys:
            messages.append(path._replace(name="row_key"))
            state += [path._replace(name="key"), path._replace(name="continues")]
            refused.append(path._replace(name="row:$.key"))
    yield Searched(table=table.bronze.name, paths=tuple(messages), texts=("value",))
    yield Searched(table=table.name + STATE, paths=tuple(state), texts=("columns",))
    yield Searched(table=table.name + QUARANTINE, paths=tuple(refused), texts=("row",))


class _LineError(Exception):
    """Why a line is no subject."""


def _values(line: bytes, categories: Collection[str]) -> tuple[tuple[str, str], ...]:
    known = f"the lake has {', '.join(sorted(categories)) or 'none'}"
    if len(line) > MAX_LINE:
        raise _LineError(f"has more than {MAX_LINE:,} bytes")
    try:
        value = json.loads(line.decode(), object_pairs_hook=_Pairs)
    except UnicodeDecodeError:
        raise _LineError("is no UTF-8") from None
    except (ValueError, RecursionError):
        raise _LineError("is no JSON") from None
    if not isinstance(value, _Pairs) or not value:
        raise _LineError('is no JSON object of values by category, such as {"email": …}')
    if len({name for name, _ in value}) < len(value):
        raise _LineError("has a category twice: write a line for each value")
    if any(name not in categories for name, _ in value):
        raise _LineError(f"has a category of which no column is declared or decided to be; {known}")
    return tuple(sorted((name, _text(one)) for name, one in value))


class _Pairs(list[tuple[str, Any]]):
    """The fields of an object, those of one name too."""


def _text(value: Any) -> str:
    """A value as columns of text have it."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _LineError("has a value that is neither a text nor a whole number")
    text = str(value)
    if not text.strip():
        raise _LineError("has an empty value")
    if "\0" in text or any("\ud800" <= one <= "\udfff" for one in text):
        raise _LineError("has a value with a character that no table holds")
    return text


RESCUED = "_rescued"  # of the table of a type: values that have no column
SUMMARY = "summary.json"


@dataclass(frozen=True, kw_only=True)
class SearchedTable:
    """A table that was searched: its rows of subjects, of how many, and the rows in which something
    cannot be parsed.
    """

    table: str
    rows: int
    subjects: int
    unreadable: int


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was found, without a value of anybody; `out_of_reach` by the numbers of the subjects'
    lines.
    """

    subjects: int
    tables: tuple[SearchedTable, ...]
    out_of_reach: Mapping[OutOfReach, tuple[int, ...]]

    def document(self) -> dict[str, Any]:
        """As it is printed and kept."""
        return {
            "subjects": self.subjects,
            "rows": sum(one.rows for one in self.tables),
            "tables": [asdict(one) for one in self.tables],
            "out_of_reach": [
                {**asdict(one), "lines": list(lines)} for one, lines in self.out_of_reach.items()
            ],
        }


@dataclass
class Export:
    """The files of one answer, each written row by row."""

    folder: Path
    stack: ExitStack
    files: dict[str, TextIO] = field(default_factory=dict)

    def add(self, table: str, subject: int, by: tuple[str, ...], row: str) -> None:
        """A row of a table, which is a JSON text, with the subject whose it is, and the columns
        that say so.
        """
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
        raise InvalidValueError(
            "folder", str(folder), "is no folder; name one that does not exist yet"
        )
    if folder.exists() and any(folder.iterdir()):
        raise InvalidValueError(
            "folder", str(folder), "is not empty; name one that does not exist yet"
        )
    if not folder.absolute().parent.is_dir():
        raise InvalidValueError(
            "folder",
            str(folder),
            f"cannot be made, as {folder.absolute().parent} is no folder; make that first",
        )


@contextmanager
def exporting(folder: Path) -> Iterator[Export]:
    """An export whose folder exists once all went well, for its owner alone; where something did
    not, nothing is left of it.

    Raises:
        LakeChimeError: it cannot be written.
    """
    check_new(folder)
    whole = folder.absolute()
    try:
        # which only its owner may enter
        made = Path(tempfile.mkdtemp(prefix=f".{whole.name}.", dir=whole.parent))
        try:
            with ExitStack() as stack:
                yield Export(made, stack)
            made.rename(whole)  # in the place of an empty one
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        raise LakeChimeError(
            f"{folder} cannot be written: {error.strerror or type(error).__name__}"
        ) from None


def answer(
    lake: Lake,
    platform: Platform,
    subjects: Sequence[Subject],
    export: Export,
    log: Callable[[str], None],
) -> Answer:
    """Find the rows of subjects and export them.

    Args:
        lake: The lake.
        platform: Where its tables are.
        subjects: Who asks.
        export: Takes the rows.
        log: Receives the message which Spark is used.

    Raises:
        TableUnreadableError: naming the table that cannot be searched.
    """
    tagged = PersonalData(platform, lake).found(AskedLineage(platform, lake).network)
    others = _others(lake, platform)
    searched = _searched(lake, platform, tagged, others)
    tables = _search(lake, platform, searched, subjects, export, log)
    lines: dict[OutOfReach, list[int]] = {}
    unread = _unread(lake, tagged, searched, others)
    # who give the same categories are found at the same paths
    for given in sorted({one.categories for one in subjects}, key=sorted):
        for path in out_of_reach(tagged, given, unread):
            lines.setdefault(path, []).extend(
                one.line for one in subjects if one.categories == given
            )
    return Answer(
        subjects=len(subjects),
        tables=tuple(tables),
        out_of_reach={one: tuple(sorted(several)) for one, several in lines.items()},
    )


def _others(lake: Lake, platform: Platform) -> dict[str, TableFormat]:
    """The tables that are no Delta tables, with their formats."""
    types = {
        one.table: group.format
        for group in lake.groups
        for one in event_types(platform).types(group.name).values()
    }
    found = {**types, **{table.name: table.format for table in lake.tables}}
    return {name: one for name, one in found.items() if one is not TableFormat.DELTA}


def _searched(
    lake: Lake, platform: Platform, tagged: Sequence[Tagged], others: Collection[str]
) -> list[Searched]:
    """The tables to search that exist."""
    types = {
        one.table: frozenset(tag.category for tag in group.personal.values())
        for group in lake.groups
        if group.personal
        for one in event_types(platform).types(group.name).values()
    }
    return [
        one
        for one in searched_tables(lake, tagged, types, RESCUED)
        if one.table not in others
        and platform.log_at(_location(lake, platform, one.table), one.table).exists()
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


def _unread(
    lake: Lake,
    tagged: Sequence[Tagged],
    searched: Sequence[Searched],
    others: Mapping[str, TableFormat],
) -> dict[str, str]:
    """Why tables with personal data cannot be searched."""
    ours = {table.name for table in lake.tables} | {one.table for one in searched}
    unread = {
        one.ref.table: "it is outside the lake" for one in tagged if one.ref.table not in ours
    }
    return unread | {
        name: f"it is a table of {its_format}: only Delta tables are searched"
        for name, its_format in others.items()
    }


def _search(
    lake: Lake,
    platform: Platform,
    searched: Sequence[Searched],
    subjects: Sequence[Subject],
    export: Export,
    log: Callable[[str], None],
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
            tables.append(
                SearchedTable(
                    table=one.table, rows=rows, subjects=len(found), unreadable=unreadable
                )
            )
    return tables
