"""The jars that Spark needs beside pyspark's own: what ivy.xml names, fetched once by the Ivy inside pyspark.

A folder is complete when its manifest, written last, agrees with every jar in it. That is checked without starting Java and without
a network. A folder filled by hand with the right files is accepted too.
"""

import hashlib
import json
import logging
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from lakechime_dagster.errors import SparkUnavailableError
from lakechime_dagster.lock import locked
from lakechime_dagster.spark.drivers.java import Java, find_java

IVY_FILE = Path(__file__).with_name("ivy.xml")
MANIFEST = "manifest.json"


def ensure_jars(folder: Path, java: Callable[[], Java], progress: Callable[[str], None] = print) -> list[Path]:
    """The jars in this folder, fetched if they are not there; several processes may ask at once.

    Args:
        folder: Where they are or shall be.
        java: Asked only when something must be fetched.
        progress: Told one line before and one after fetching.

    Raises:
        SparkUnavailableError: a jar is broken, or the jars cannot be fetched.
    """
    if (jars := complete_jars(folder)) is not None:
        return jars
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_name(f"{folder.name}.lock")):
            if complete_jars(folder) is None:
                _fetch(folder, java(), progress)
    except OSError as error:
        raise SparkUnavailableError(f"Spark's jars cannot be kept in {folder}: {error.strerror or error}") from error
    jars = complete_jars(folder)
    if jars is None:
        raise SparkUnavailableError(f"Spark's jars in {folder} changed while they were fetched: start again")
    return jars


def complete_jars(folder: Path) -> list[Path] | None:
    """The jars of a complete folder in the order of ivy.xml, or None if some are missing or others are asked for now.

    Raises:
        SparkUnavailableError: a jar is there but broken.
    """
    jars = [folder / name for name in jar_names()]
    if not all(jar.is_file() for jar in jars):
        return None
    digests = _manifest(folder)
    if digests is None:
        if broken := next((jar for jar in jars if not _is_whole(jar)), None):
            raise _broken(broken)
        return jars
    for jar in jars:
        if jar.name in digests and _digest(jar) != digests[jar.name]:
            raise _broken(jar)
    return jars


@cache
def jar_names() -> tuple[str, ...]:
    """The file names that ivy.xml stands for."""
    dependencies = ElementTree.parse(IVY_FILE).getroot().iter("dependency")
    return tuple(f"{each.attrib['name']}-{each.attrib['rev']}.jar" for each in dependencies)


@cache
def pyspark_home() -> Path:
    """The folder of the installed pyspark, found without importing it.

    Raises:
        SparkUnavailableError: there is none.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SparkUnavailableError("pyspark is not installed: pip install 'lakechime-dagster[spark]'")
    return Path(spec.origin).parent


def _fetch(folder: Path, java: Java, progress: Callable[[str], None]) -> None:
    progress(f"Fetching {len(jar_names())} jars for Spark into {folder} (once, about 23 MB)")
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
        fetched = Path(temporary) / "jars"
        answer = retrieve(IVY_FILE, fetched, java, cache=Path(temporary) / "cache")
        missing = [name for name in jar_names() if not (fetched / name).is_file()]
        if missing:
            log = folder.with_name(f"{folder.name}-fetch.log")
            log.write_text(answer.stdout + answer.stderr, encoding="utf-8")
            raise SparkUnavailableError(
                f"Spark's jars could not be fetched (is there a network? {log} has the details): start again, or put into {folder}: "
                + ", ".join(missing)
            )
        _move_in(fetched, folder)
    progress(f"Fetched Spark's jars into {folder}")


def retrieve(ivy_file: Path, folder: Path, java: Java, cache: Path) -> subprocess.CompletedProcess[str]:
    """Has the Ivy inside pyspark put what a file asks for into a folder; its answer says how that went."""
    return subprocess.run(
        [
            java.executable, *java.trust_options, "-cp", f"{pyspark_home() / 'jars'}/*", "org.apache.ivy.Main", "-warn",
            "-cache", cache, "-ivy", ivy_file, "-retrieve", f"{folder}/[artifact]-[revision].[ext]",
        ],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def _move_in(fetched: Path, folder: Path) -> None:
    """Puts a whole set of jars in place; the manifest comes last and makes it count."""
    digests = {name: _digest(fetched / name) for name in jar_names()}
    (fetched / MANIFEST).write_text(json.dumps(digests, indent=1), encoding="utf-8")
    if not folder.exists():
        fetched.rename(folder)
        return
    (folder / MANIFEST).unlink(missing_ok=True)
    for name in (*jar_names(), MANIFEST):
        shutil.move(fetched / name, folder / name)


def _manifest(folder: Path) -> dict[str, str] | None:
    try:
        return json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def _digest(jar: Path) -> str:
    digest = hashlib.sha256()
    with jar.open("rb") as stream:
        while part := stream.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def _is_whole(jar: Path) -> bool:
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.testzip() is None
    except zipfile.BadZipFile:
        return False


def _broken(jar: Path) -> SparkUnavailableError:
    return SparkUnavailableError(f"{jar} is broken: delete it and start again; it is fetched anew")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    ensure_jars(Path(sys.argv[1]).resolve(), find_java, logging.getLogger(__name__).info)
