"""dlt's load of JSON events into a Delta table for each type: run by an environment of its own,
with a folder and files, one a load.

It says how many seconds the last load took; those before it make the tables, and warm the process.
"""

import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import dlt  # pyright: ignore[reportMissingImports]
import orjson  # pyright: ignore[reportMissingImports]

CHUNK = 5000  # events that are handed over at a time


def events(file: str) -> Iterator[list[dict[str, Any]]]:
    with Path(file).open("rb") as lines:
        while chunk := list(islice(lines, CHUNK)):
            yield [orjson.loads(line) for line in chunk]


def main(folder: str, *files: str) -> None:
    pipeline = dlt.pipeline(
        "game",
        pipelines_dir=f"{folder}/pipelines",
        dataset_name="types",
        destination=dlt.destinations.filesystem(bucket_url=Path(folder).as_uri()),
    )
    seconds = 0.0
    for file in files:
        began = time.perf_counter()
        rows = dlt.resource(
            events(file),
            name="events",
            table_name=lambda event: event["event_type"],
            write_disposition="append",
            table_format="delta",
        )
        pipeline.run(rows).raise_on_failed_jobs()
        seconds = time.perf_counter() - began
        print(seconds, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
