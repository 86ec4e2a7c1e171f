"""The jars of Kafka, Kafka Connect and Debezium, fetched once as ivy.xml says by the Ivy inside pyspark."""

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lock import locked
from lakechime_dagster.spark.drivers.jars import retrieve
from lakechime_dagster.spark.drivers.java import Java

IVY_FILE = Path(__file__).with_name("ivy.xml")


def ensure_server_jars(home: Path, java: Java, progress: Callable[[str], None] = print) -> Path:
    """Their folder in `home`, named after what ivy.xml asks for; it is complete where it is there, because it is moved in whole.

    Raises:
        LakeChimeError: they cannot be fetched.
    """
    asked = sorted(" ".join(each.attrib.values()) for each in ElementTree.parse(IVY_FILE).getroot().iter("dependency"))
    folder = home / f"stack-jars-{hashlib.sha256(' '.join(asked).encode()).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / "stack-jars.lock"), tempfile.TemporaryDirectory(prefix=".stack-", dir=home) as temporary:
        if not folder.is_dir():
            progress(f"Fetching the jars of Kafka, Connect and Debezium into {folder} (once, about 65 MB)")
            _fetch(Path(temporary), folder, java)
    return folder


def _fetch(temporary: Path, folder: Path, java: Java) -> None:
    fetched = temporary / "jars"
    answer = retrieve(IVY_FILE, fetched, java, cache=temporary / "cache")
    if answer.returncode or not fetched.is_dir():
        said = (answer.stdout + answer.stderr).strip()[-500:]
        raise LakeChimeError(f"the jars of Kafka, Connect and Debezium cannot be fetched; is there a network? {said}")
    for other in (*fetched.glob("*-sources.jar"), *fetched.glob("*-javadoc.jar"), *fetched.glob("*.pom")):
        other.unlink()
    fetched.rename(folder)
