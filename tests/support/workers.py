"""How the tests are shared out between worker processes, and what tests say to whoever started them.

What drives a whole deployment waits much of its time: it is two workers' at most, beside the Spark of the others.
"""

import sys
from collections.abc import Callable

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

DEPLOYMENTS = {
    "tests/e2e/": "lakes",
    "tests/cli/test_dev.py": "lakes",
    "tests/crash/": "machines",
    "tests/test_bare_machine.py": "machines",
}
SAID = "said"


class ByDeployment(LoadFileScheduling):
    """Tests of a file stay together, and so do those that drive deployments of one kind."""

    def _split_scope(self, nodeid: str) -> str:
        return deployment_of(nodeid) or super()._split_scope(nodeid)


def deployment_of(nodeid: str) -> str | None:
    """The kind of deployment that a test drives, if any."""
    return next((kind for path, kind in DEPLOYMENTS.items() if nodeid.startswith(path)), None)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByDeployment:
    return ByDeployment(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long work first, that of a folder together; else the order stays as it was drawn."""

    def rank(item: pytest.Item) -> tuple[bool, str, bool]:
        kind = deployment_of(item.nodeid)
        return kind is None, item.nodeid.rpartition("/")[0] if kind else "", item.get_closest_marker("spark") is None

    items.sort(key=rank)


@pytest.fixture
def say(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Prints a line whether or not pytest shows what passing tests print; a worker's lines come at the end."""

    def say(line: str) -> None:
        if hasattr(request.config, "workerinput"):
            request.node.user_properties.append((SAID, line))
            return
        with capsys.disabled():
            sys.stdout.write(f"\n{line}\n")

    return say


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                for name, line in report.user_properties:
                    if name == SAID:
                        terminalreporter.write_line(f"{report.nodeid}: {line}")
