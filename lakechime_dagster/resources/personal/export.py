"""A folder into which rows of people are written: for its owner alone, and there when it is whole, or not at all."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from lakechime_dagster.errors import InvalidValueError, LakeChimeError

SUMMARY = "summary.json"


def check_new(folder: Path) -> None:
    """See to it that a folder can be made, or is there and empty.

    Raises:
        InvalidValueError: naming the folder and the remedy.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InvalidValueError("folder", str(folder), "is no folder; name one that is not there yet")
    if folder.exists() and any(folder.iterdir()):
        raise InvalidValueError("folder", str(folder), "is not empty; name one that is not there yet")
    if not folder.absolute().parent.is_dir():
        raise InvalidValueError("folder", str(folder), f"cannot be made, as {folder.absolute().parent} is no folder; make that first")


@dataclass
class Export:
    """The files of one answer, each written row by row."""

    folder: Path
    files: dict[str, TextIO] = field(default_factory=dict)

    def add(self, table: str, subject: int, by: tuple[str, ...], row: str) -> None:
        """A row of a table, which is a JSON text, with the subject whose it is."""
        if table not in self.files:
            self.files[table] = self._open(f"{table}.jsonl")
        told = json.dumps({"subject": subject, "by": by}, ensure_ascii=False)
        self.files[table].write(f'{told[:-1]}, "row": {row}}}\n')

    def summary(self, document: Mapping[str, Any]) -> None:
        """What was found and what was not, for people."""
        with self._open(SUMMARY) as file:
            file.write(json.dumps(document, ensure_ascii=False, indent=2) + "\n")

    def _open(self, name: str) -> TextIO:
        number = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        return open(number, "w", encoding="utf-8", newline="\n")  # noqa: PTH123 - of a file that only its owner can open from the first

    def __enter__(self) -> "Export":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for file in self.files.values():
            file.close()


@contextmanager
def exporting(folder: Path) -> Iterator[Export]:
    """An export that is in its folder once all went well; where something did not, nothing is left of it.

    Raises:
        LakeChimeError: it cannot be written.
    """
    check_new(folder)
    whole = folder.absolute()
    try:
        made = Path(tempfile.mkdtemp(prefix=f".{whole.name}.", dir=whole.parent))  # which only its owner may enter
        try:
            with Export(made) as export:
                yield export
            made.rename(whole)  # in the place of an empty one
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        raise LakeChimeError(f"{folder} cannot be written: {error.strerror or type(error).__name__}") from None
