"""How the tests are shared out between two worker processes, and what tests say to whoever started them.

What drives a whole deployment waits most of its time: all of it is one worker's, beside the other one's Spark.
"""

import sys
from collections.abc import Callable

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

DEPLOYMENTS = ("tests/e2e/", "tests/crash/", "tests/cli/test_dev.py", "tests/test_bare_machine.py")
SAID = "said"


class ByDeployment(LoadFileScheduling):
    """Tests of a file stay together, and so do all that drive deployments."""

    def _split_scope(self, nodeid: str) -> str:
        return "deployments" if nodeid.startswith(DEPLOYMENTS) else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByDeployment:
    return ByDeployment(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long work first: the order of files within each kind stays as it was drawn."""
    items.sort(key=lambda item: (not item.nodeid.startswith(DEPLOYMENTS), item.get_closest_marker("spark") is None))


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
