"""What the page of lineage costs: `python -m benchmarks.lineage_page [--json] [--tables 100000]
[--store FILE]`.

A made-up lake of 12 layers, three inputs and 20 columns a table, is recorded in a store, which
takes minutes, or is that of a file from a run before. Then the page is asked for what is around
tables and hubs. Times are processor times of the server, so that who else is on the machine does
not count.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks._lines import Line, at_most, show
from lakechime_dagster.api.lineage_page import around_json
from lakechime_dagster.lineage.columns import LineageRecord
from lakechime_dagster.lineage.recording import SqlLineage
from lakechime_dagster.lineage.service import AskedLineage
from lakechime_dagster.lineage.store import facts_of
from lakechime_dagster.runtime.platform import open_platform
from lakechime_dagster.settings import load_settings
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.tables import SourceTable
from tests.lineage.factories import make_record, make_statement

LAYERS, INPUTS, COLUMNS, TOGETHER = 12, 3, 20, 500
ASKED = 50


def measure(tables: int, home: Path, store: Path) -> Iterator[Line]:
    platform = open_platform(load_settings(home=home, store_url=f"sqlite:///{store}"))
    lake = Lake("made_up", [SourceTable(_name(0, tables))])
    engine = platform.store.engine
    if facts_of(engine, [_name(tables - 1, tables)]) == {}:
        for some in _records(tables):
            SqlLineage(engine).record_all(some)
    random = np.random.default_rng(11)

    def ask(name: str) -> float:
        return 1e3 * _seconds(lambda: around_json(AskedLineage(platform, lake), name, 1, 1))

    width = tables // LAYERS
    others = [_name(int(number), tables) for number in random.integers(width, tables, ASKED)]
    hubs = [
        _name(layer * width + rank, tables)
        for layer in range(1, LAYERS - 1)
        for rank in range(ASKED // LAYERS)
    ]
    yield at_most("first question, processor time of the server", ask(hubs[0]), "ms", 200)
    for what, names in (("any table", others), ("a hub, 150 tables", hubs)):
        times = [ask(name) for name in names]
        yield at_most(
            f"around {what}, processor time of the server, p95",
            float(np.quantile(times, 0.95)),
            "ms",
            200,
        )
    engine.dispose()


def _records(tables: int) -> Iterator[list[LineageRecord]]:
    random, width, some = np.random.default_rng(7), tables // LAYERS, list[LineageRecord]()
    for number in range(width, tables):
        layer = number // width
        back = [
            1 if random.random() < 0.7 else int(random.integers(1, layer + 1))
            for _ in range(INPUTS)
        ]
        inputs = [
            _name((layer - one) * width + min(int(random.zipf(1.3)) - 1, width - 1), tables)
            for one in back
        ]
        columns = {
            f"column{at:02}": f"{inputs[at % INPUTS]}.column{random.integers(COLUMNS):02}"
            for at in range(COLUMNS)
        }
        statement = make_statement(_name(number, tables), **columns)  # pyright: ignore[reportArgumentType]
        some.append(make_record(statement, job=str(number), run=str(number)))
        if len(some) == TOGETHER:
            yield some
            some = []
    yield some


def _name(number: int, tables: int) -> str:
    return f"layer{number // (tables // LAYERS):02}.table{number:06}"


def _seconds(act: Callable[[], object]) -> float:
    """Seconds of this process: who else is on the machine does not count."""
    began = time.process_time()
    act()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--tables", type=int, default=100_000)
    parser.add_argument("--store", type=Path, help="the file of a run before, or of the next one")
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="lakechime-bench-") as folder:
        home = Path(folder)
        show(measure(asked.tables, home, asked.store or home / "dce.sqlite"), as_json=asked.json)


if __name__ == "__main__":
    main()
