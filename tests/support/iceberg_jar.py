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
    """The jar, which is whole where it is there, because it is moved in when it is.

    Raises:
        LakeChimeError: It cannot be fetched.
    """
    (asked,) = ElementTree.parse(IVY_FILE).getroot().iter("dependency")
    home = REPOSITORY / ".lakechime"
    jar = home / "iceberg" / f"{asked.attrib['name']}-{asked.attrib['rev']}.jar"
    if jar.is_file():
        return jar
    jar.parent.mkdir(parents=True, exist_ok=True)
    with (
        locked(home / "iceberg.lock"),
        tempfile.TemporaryDirectory(prefix=".iceberg-", dir=home) as temporary,
    ):
        if not jar.is_file():
            print(f"Fetching Iceberg's jar into {jar.parent} (once, about 46 MB)", file=sys.stderr)  # noqa: T201
            answer = retrieve(
                IVY_FILE, Path(temporary) / "jars", find_java(), cache=Path(temporary) / "cache"
            )
            fetched = Path(temporary) / "jars" / jar.name
            if answer.returncode or not fetched.is_file():
                said = (answer.stdout + answer.stderr).strip()[-500:]
                raise LakeChimeError(f"Iceberg's jar cannot be fetched; is there a network? {said}")
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
