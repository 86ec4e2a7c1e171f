"""Why what a table's code computes is not known until it runs: it writes or acts, which is refused while it is planned."""

from collections.abc import Iterable

from lakechime_dagster.lineage.names import Names
from lakechime_dagster.lineage.planned.manifest import UNTIL_IT_RUNS
from lakechime_dagster.lineage.plans.dump import Dump
from lakechime_dagster.lineage.plans.statements import statements_of

IN_PYTHON = {"javaToPython": "rdd", "toPythonIterator": "toLocalIterator", "collectAsArrowToPython": "toPandas"}


def refused_said(refused: Iterable[tuple[str, bool, Dump | None]], names: Names) -> str:
    """The reason.

    Args:
        refused: By which method, whether it is a command, and its dump, of each thing that was refused.
        names: The lake's names of tables.
    """
    said = dict.fromkeys(f"{_done(is_command, dump, names)} ({_called(by)})" for by, is_command, dump in refused)
    return f"{UNTIL_IT_RUNS}: {', '.join(f'it {one}' for one in said)}"


def _done(is_command: bool, dump: Dump | None, names: Names) -> str:
    if not is_command or dump is None or dump.plan is None:
        return "acts"
    found = statements_of([dump], names)
    if not found.statements:
        return f"executes {dump.plan.name}"
    target = found.statements[0].target
    return f"writes {target if target in names.tables else _outside(target)}"


def _outside(target: str) -> str:
    """What is outside of the lake, without the folders above it, which differ from machine to machine."""
    return target.rstrip("/").rsplit("/", 1)[-1]


def _called(by: str) -> str:
    """A method of Spark's JVM by the name that it has in Python."""
    owner, _, method = by.partition(".")
    name = IN_PYTHON.get(method) or method.removesuffix("ToPython").removesuffix("String")
    return f"{'DataFrame' if owner == 'Dataset' else owner}.{name}"
