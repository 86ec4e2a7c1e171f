"""dlt's `upsert` of the orders into a Delta table: run by an environment of its own, with a folder
and the bronze table.

It says `ready` when its dataset is there, waits for a line, by which time the table lies in it, and
says how many seconds it took.
"""

import sys
import time
from pathlib import Path

import dlt  # pyright: ignore[reportMissingImports]

from benchmarks._plain import newest_rows


def main(folder: str, bronze: str) -> None:
    pipeline = dlt.pipeline(
        "orders",
        pipelines_dir=f"{folder}/pipelines",
        dataset_name="shop",
        destination=dlt.destinations.filesystem(bucket_url=Path(folder).as_uri()),
    )
    pipeline.run([{"one": 1}], table_name="started")
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    rows = dlt.resource(
        newest_rows(bronze),
        name="orders",
        write_disposition={"disposition": "merge", "strategy": "upsert"},
        primary_key="id",
        table_format="delta",
        columns={"deleted": {"hard_delete": True}},
    )
    pipeline.run(rows).raise_on_failed_jobs()
    print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
