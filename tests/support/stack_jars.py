"""The jars of the capture stack, fetched once as stack_ivy.xml says; `python -m tests.support.stack_jars` does it ahead of the tests."""

import hashlib
import sys
import tempfile
from pathlib import Path

from lakechime_dagster.lock import locked
from lakechime_dagster.spark.jars import retrieve
from lakechime_dagster.spark.java import find_java
from tests.support.processes import REPOSITORY

IVY_FILE = Path(__file__).with_name("stack_ivy.xml")
HOME = REPOSITORY / ".lakechime"


def ensure_stack_jars() -> Path:
    """Their folder, named after what stack_ivy.xml asks for; it is complete where it is there, because it is moved in whole.

    Raises:
        LookupError: They cannot be fetched.
    """
    folder = HOME / f"stack-jars-{hashlib.sha256(IVY_FILE.read_bytes()).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    HOME.mkdir(exist_ok=True)
    with locked(HOME / "stack-jars.lock"), tempfile.TemporaryDirectory(prefix=".stack-", dir=HOME) as temporary:
        if not folder.is_dir():
            sys.stderr.write(f"Fetching the jars of Kafka, Connect and Debezium into {folder} (once, about 65 MB)\n")
            _fetch(Path(temporary), folder)
    return folder


def _fetch(temporary: Path, folder: Path) -> None:
    fetched = temporary / "jars"
    answer = retrieve(IVY_FILE, fetched, find_java(), cache=temporary / "cache")
    if answer.returncode or not fetched.is_dir():
        raise LookupError(f"the jars of Kafka, Connect and Debezium cannot be fetched: {(answer.stdout + answer.stderr).strip()[-500:]}")
    for other in (*fetched.glob("*-sources.jar"), *fetched.glob("*-javadoc.jar"), *fetched.glob("*.pom")):
        other.unlink()
    fetched.rename(folder)


if __name__ == "__main__":
    try:
        ensure_stack_jars()
    except LookupError as error:
        sys.exit(str(error))
