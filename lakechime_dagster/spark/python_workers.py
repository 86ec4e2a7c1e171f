"""Starts Spark's Python workers."""

import os
import sys
from importlib.machinery import PathFinder

ARCHIVES = (".jar", ".zip")


def import_from_folders(spark_home: str) -> None:
    """Takes Spark's archives out of where this process and its forks import from, unless Spark is
    nowhere else; a program's stay.
    """
    home = os.path.realpath(spark_home)  # a virtual environment may be a link
    left = [
        entry
        for entry in sys.path
        if not (os.path.realpath(entry).startswith(home) and entry.endswith(ARCHIVES))
    ]
    if all(PathFinder.find_spec(name, left) for name in ("pyspark", "py4j")):
        sys.path[:] = left


if __name__ == "__main__":
    import_from_folders(os.environ["SPARK_HOME"])
    from pyspark.daemon import manager

    manager()
