"""How the tests are shared out between worker processes, and what tests say to whoever started them.

What drives a whole deployment is one worker's, one after the other, beside the Spark of the others: its ticks, monitors and
writers do the more work the longer it stands, so that several at once take longer than one by one. The shop alone, which
ten short tests share, may stand beside another.
"""

import sys
from collections.abc import Callable

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

TOGETHER = {
    "shop": ("tests/e2e/test_ui.py", "tests/e2e/test_loop.py"),  # one deployment, which is there from their first to their last
    "deployments": (
        "tests/e2e/", "tests/cli/test_dev.py", "tests/crash/", "tests/test_bare_machine.py", "tests/support/test_stack.py",
        "tests/feeds/test_kafka.py", "tests/cli/test_trigger_of_topics.py", "tests/spark/following/test_kafka.py",
        "tests/assets/test_change_table_of_kafka.py",
    ),
}  # fmt: skip
LONG = [
    "deployments", "tests/spark/test_refresh.py", "tests/spark/following/test_follow.py", "tests/spark/following/test_follow_sources.py",
    "shop", "tests/spark/following/test_follow_columns.py", "tests/spark/drivers/test_warm.py", "tests/store/test_commit_order.py",
]  # fmt: skip
SAID = "said"


class ByGroup(LoadFileScheduling):
    """Tests of a group are one worker's."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    """The tests that a test stays together with: those of its file, or of several by what they need."""
    return next((group for group, paths in TOGETHER.items() if nodeid.startswith(paths)), nodeid.partition("::")[0])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByGroup:
    config.option.loadscopereorder = False  # groups come in the order below, not in that of how many tests they have
    return ByGroup(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long work first, then what needs Spark; else the order stays as it was drawn."""

    def rank(item: pytest.Item) -> tuple[int, bool]:
        group = group_of(item.nodeid)
        return LONG.index(group) if group in LONG else len(LONG), item.get_closest_marker("spark") is None

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
