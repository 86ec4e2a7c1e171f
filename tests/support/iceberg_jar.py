"""Iceberg's jar; `python -m tests.support.iceberg_jar` fetches it ahead of the tests."""

import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lock import locked
from lakechime_dagster.spark.jvm import find_java, retrieve
from tests.support.missing import missing
from tests.support.processes import REPOSITORY

IVY_FILE = Path(__file__).with_name("iceberg.xml")


def ensure_iceberg_jar() -> Path:
    """Iceberg's jar.

    Raises:
        LakeChimeError: It cannot be fetched.
    """
    return ensure_jar(IVY_FILE, "about 46 MB")


def ensure_jar(ivy_file: Path, size: str) -> Path:
    """The one jar that a file asks for, in a folder named as that; it is whole where it is there,
    because it is moved in when it is.

    Raises:
        LakeChimeError: It cannot be fetched.
    """
    (asked,) = ElementTree.parse(ivy_file).getroot().iter("dependency")
    home, name = REPOSITORY / ".lakechime", ivy_file.stem
    jar = home / name / f"{asked.attrib['name']}-{asked.attrib['rev']}.jar"
    if jar.is_file():
        return jar
    jar.parent.mkdir(parents=True, exist_ok=True)
    with (
        locked(home / f"{name}.lock"),
        tempfile.TemporaryDirectory(prefix=f".{name}-", dir=home) as temporary,
    ):
        if not jar.is_file():
            print(f"Fetching {jar.name} into {jar.parent} (once, {size})", file=sys.stderr)  # noqa: T201
            answer = retrieve(
                ivy_file, Path(temporary) / "jars", find_java(), cache=Path(temporary) / "cache"
            )
            fetched = Path(temporary) / "jars" / jar.name
            if answer.returncode or not fetched.is_file():
                said = (answer.stdout + answer.stderr).strip()[-500:]
                raise LakeChimeError(f"{jar.name} cannot be fetched; is there a network? {said}")
            fetched.rename(jar)
    return jar


@pytest.fixture(scope="session")
def iceberg_jar() -> Path:
    """The jar of Iceberg, fetched once."""
    try:
        return ensure_iceberg_jar()
    except LakeChimeError as error:
        missing(str(error), "run `make ready` with a network")


if __name__ == "__main__":
    try:
        ensure_iceberg_jar()
    except LakeChimeError as error:
        sys.exit(str(error))
