"""The three tiers of tests, how tests are shared out between worker processes, and what a run
prints at its end.

`make test` runs tier 1, `.ci/run` adds tier 2, `make test-full` runs all three; `-m tier1` selects
one. A test that starts a server or a browser, or drives the product's processes, is in tier 2, a
test that needs Spark in tier 3, every other in tier 1. A marker `tier1`, `tier2` or `tier3` on the
test overrides that. On PostgreSQL, a store test is in tier 2 if it is marked `dialect`, else in
tier 3.
"""

import sys
from collections.abc import Callable

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

TIERS = ("tier1", "tier2", "tier3")
TOGETHER = {
    "shop": (
        "tests/e2e/test_ui.py",
        "tests/e2e/test_loop.py",
    ),  # one deployment, which runs from their first to their last
    # one after the other: several at once do more work, since their ticks go on as long as they
    # stand
    "deployments": (
        "tests/e2e/",
        "tests/cli/test_dev.py",
        "tests/crash/",
        "tests/test_bare_machine.py",
        "tests/sources/test_kafka.py",
        "tests/cdc/spark/test_kafka.py",
    ),
}
# in tier 1 one worker has all of them, and so the only Spark session
ON_SPARK = ("tests/spark/", "tests/assets/", "tests/cdc/spark/")
# first
LONG = (
    "spark",
    "deployments",
    "tests/spark/test_refresh.py",
    "tests/cdc/spark/test_refresh.py",
    "shop",
)
# fixtures
SERVERS = {
    "browser",
    "connect",
    "kafka",
    "logical_postgres",
    "mariadb",
    "metastore",
    "postgres_server",
    "rest_catalog",
    "served_iceberg",
}
SAID = "said"


class ByGroup(LoadFileScheduling):
    """Tests of a group run in one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid, self.config.option.markexpr)


def group_of(nodeid: str, tier: str) -> str:
    """The group of a test: its file, or several files by what they need."""
    if tier == "tier1" and nodeid.startswith(ON_SPARK):
        return "spark"
    return next(
        (group for group, paths in TOGETHER.items() if nodeid.startswith(paths)),
        nodeid.partition("::")[0],
    )


def tier_of(item: pytest.Item) -> str:
    """The tier of a test."""
    markers = {marker.name for marker in item.iter_markers()}
    for tier in TIERS:
        if tier in markers:
            return tier
    if markers & {"services", "e2e"} or SERVERS & set(getattr(item, "fixturenames", ())):
        callspec = getattr(item, "callspec", None)
        is_on_postgres = callspec is not None and "postgres" in callspec.params.values()
        return "tier3" if is_on_postgres and "dialect" not in markers else "tier2"
    return "tier3" if "spark" in markers else "tier1"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByGroup:
    config.option.loadscopereorder = False  # groups start in the order of `LONG`
    return ByGroup(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the test with its tier, so that `-m` can select it."""
    if not any(item.get_closest_marker(tier) for tier in TIERS):
        item.add_marker(tier_of(item))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long groups first, then what needs Spark; else the order stays as it was drawn."""

    def rank(item: pytest.Item) -> tuple[int, bool]:
        group = group_of(item.nodeid, config.option.markexpr)
        return LONG.index(group) if group in LONG else len(LONG), item.get_closest_marker(
            "spark"
        ) is None

    items.sort(key=rank)


@pytest.fixture
def say(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], None]:
    """Prints a line whether or not pytest shows what passing tests print; a worker's lines follow
    at the end.
    """

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
    failed = [
        report.nodeid
        for kind in ("failed", "error")
        for report in terminalreporter.stats.get(kind, ())
    ]
    if failed:
        terminalreporter.section("run one of them alone")
    for nodeid in dict.fromkeys(failed):
        terminalreporter.write_line(f"make test PYTEST_ARGS='\"{nodeid}\"'")
