"""What questions to lineage cost: `python -m benchmarks.lineage_graph [--json] [--tables 100000]`.

A made-up lake of 12 layers, three inputs a table of which most are from the layer before, by a Zipf
law of popularity, and 20 columns a table, of which 3 % are opaque: they may come from any column of
each input. Hubs are the 2,000 tables that are read most.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks._lines import Line, at_least, at_most, show
from lakechime_dagster.dce.engine import open_engine, upgrade
from lakechime_dagster.lineage.answers import nodes_of, reached_tables
from lakechime_dagster.lineage.flat import table_pairs
from lakechime_dagster.lineage.graph import Part
from lakechime_dagster.lineage.network import Certainty, Edges, Network, reach
from lakechime_dagster.lineage.recording import SqlLineage
from lakechime_dagster.lineage.service import network_around, network_at
from tests.lineage.factories import make_record, make_statement

LAYERS, INPUTS, COLUMNS = 12, 3, 20
TWICE = 1.1  # as many more edges are drawn, since some come twice
OPAQUE = 0.03  # of the columns, spread over nearly half of the tables
ASKED = 200


def made_up(tables: int, seed: int = 7) -> Network:
    """A network of so many tables, thrice as many edges, and 20 columns a table, nearly each with a
    source or opaque.
    """
    random = np.random.default_rng(seed)
    width, size = tables // LAYERS, COLUMNS + 1
    pairs: list[np.ndarray] = []
    for layer in range(1, LAYERS):
        targets = np.resize(
            np.arange(layer * width, (layer + 1) * width),
            round(width * INPUTS * LAYERS / (LAYERS - 1) * TWICE),
        )
        back = np.where(
            random.random(len(targets)) < 0.7, 1, random.integers(1, layer + 1, len(targets))
        )
        popular = np.minimum(random.zipf(1.3, len(targets)) - 1, width - 1)
        pairs.append(np.stack([(layer - back) * width + popular, targets]))
    sources, targets = np.unique(np.concatenate(pairs, axis=1), axis=1)
    kinds = np.where(random.random(len(sources)) < 0.8, 1, 2).astype(np.int8)
    chosen = np.tile(np.arange(len(sources)), COLUMNS // INPUTS)  # by which input a column comes
    columns = random.integers(1, size, (2, len(chosen)))
    edges = Edges(
        (sources[chosen] * size + columns[0]).astype(np.int32),
        (targets[chosen] * size + columns[1]).astype(np.int32),
        np.where(random.random(len(chosen)) < 0.9, 1, 6).astype(np.int8),
    )
    is_opaque = (random.random(tables * size) < OPAQUE) & (np.arange(tables * size) % size > 0)
    maybe = _maybe(sources, targets, is_opaque.reshape(tables, size))
    kinds[np.isin(targets, maybe.targets // size)] |= Part.UNSURE
    names = [f"layer{number // width:02}.table{number:06}" for number in range(tables)]
    labels = tuple(
        label
        for name in names
        for label in (name, *(f"column{column:02}" for column in range(COLUMNS)))
    )
    return Network(
        tables={name: number * size for number, name in enumerate(names)},
        labels=labels,
        datasets=np.repeat(np.arange(tables, dtype=np.int32) * size, size),
        inputs=Edges((sources * size).astype(np.int32), (targets * size).astype(np.int32), kinds),
        edges=edges.where(~is_opaque[edges.targets]),
        unsure=maybe,
    )


def _maybe(sources: np.ndarray, targets: np.ndarray, is_opaque: np.ndarray) -> Edges:
    """From each input of a table to its opaque columns, by numbers of tables and by table and
    column.
    """
    size = is_opaque.shape[1]
    which, columns = np.nonzero(is_opaque[targets])
    nodes = (
        (sources[which] * size).astype(np.int32),
        (targets[which] * size + columns).astype(np.int32),
    )
    return Edges(*nodes, np.zeros(len(which), np.int8))


def measure(tables: int, records: int) -> Iterator[Line]:
    network = made_up(tables)
    reads = np.bincount(network.inputs.sources, minlength=len(network))
    hubs = [hub for hub in np.argsort(reads)[::-1][:2_000:10][:ASKED] if reads[hub]]
    warm = nodes_of(network, [network.ref(int(hubs[0]))])
    for certainty in Certainty:
        reach(network, warm, certainty)
    yield at_least(f"edges of {tables:,} tables", len(network.inputs), "")
    yield at_least(f"edges of their {tables * COLUMNS:,} columns", len(network.edges), "")
    yield at_least("edges of what may come from any column of an input", len(network.unsure), "")
    rows = [
        _seconds(lambda hub=hub: reach(network, np.array([hub], np.int32), Certainty.INDIRECT))
        for hub in hubs
    ]
    yield at_most("impact of a hub on tables, p95", 1e3 * float(np.quantile(rows, 0.95)), "ms", 10)
    starts = [nodes_of(network, [network.ref(int(hub))])[1:] for hub in hubs]
    columns = [
        _seconds(lambda start=start: reach(network, start, Certainty.DIRECT)) for start in starts
    ]
    yield at_most(
        "impact of all 20 columns of a hub on columns, p95",
        1e3 * float(np.quantile(columns, 0.95)),
        "ms",
        5,
    )
    answers = [
        _seconds(lambda hub=hub: reached_tables(network, [network.ref(int(hub))], limit=100))
        for hub in hubs
    ]
    yield at_most(
        "all kinds apart, with paths to the nearest 100 tables, p95",
        1e3 * float(np.quantile(answers, 0.95)),
        "ms",
    )
    began = time.perf_counter()
    pairs = sum(len(some) for some in table_pairs(network))
    yield at_most("flatten to pairs of tables", time.perf_counter() - began, "s", 15)
    yield at_least("pairs of tables", pairs, "")
    yield from _store(records)


def _store(records: int) -> Iterator[Line]:
    """Statements of three inputs and 20 columns: each for the first time, and then each by another
    run again.
    """
    columns = {
        f"column{at:02}": f"layer00.table{at % INPUTS}.column{at:02}" for at in range(COLUMNS)
    }
    statements = [
        make_statement(f"layer01.table{number:06}", **columns)  # pyright: ignore[reportArgumentType]
        for number in range(records)
    ]
    with TemporaryDirectory(prefix="lakechime-bench-") as folder:
        engine = open_engine(f"sqlite:///{Path(folder) / 'dce.sqlite'}")
        upgrade(engine)
        lineage = SqlLineage(engine)
        for run in ("first", "again"):
            reported = [
                make_record(one, run=f"{run}-{number}", job=str(number))
                for number, one in enumerate(statements)
            ]
            began = time.perf_counter()
            for at in range(0, len(reported), 100):
                lineage.record_all(reported[at : at + 100])
            yield at_least(
                f"records that are stored, by hundreds, {run}",
                len(reported) / (time.perf_counter() - began),
                "/s",
                500,
            )
        began = time.perf_counter()
        network_at(engine)
        yield at_most(f"read {records:,} statements as a network", time.perf_counter() - began, "s")
        one = statements[len(statements) // 2].target
        yield at_most(
            "read what is around one table of them",
            1e3 * _seconds(lambda: network_around(engine, [one], upstream=True)),
            "ms",
        )
        engine.dispose()


def _seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--tables", type=int, default=100_000)
    parser.add_argument("--records", type=int, default=5_000)
    asked = parser.parse_args()
    show(measure(asked.tables, asked.records), as_json=asked.json)


if __name__ == "__main__":
    main()
