"""pyspark without pandas: a process that converts nothing from or to pandas does not import it.

`F.lit`, and every call into the JVM that has an argument, ask `pyspark.testing.utils` whether numpy is installed. That module
finds out too whether pandas and pyarrow are new enough, and imports both for it.
"""

import importlib
import sys

from pyspark.sql.pandas import utils as requirements

ASKING = "pyspark.testing.utils"
DEMANDS = ("require_minimum_pandas_version", "require_minimum_pyarrow_version")


def spare_pandas() -> None:
    """Imports the module that asks, once a process, answering for pandas and pyarrow: our own requirements are newer than pyspark's.

    Whoever asks later, as a pandas function does, gets pyspark's own answer.
    """
    if ASKING in sys.modules:
        return
    own = {name: getattr(requirements, name) for name in DEMANDS}
    for name in DEMANDS:
        setattr(requirements, name, _is_met)
    try:
        importlib.import_module(ASKING)
    finally:
        for name, demand in own.items():
            setattr(requirements, name, demand)


def _is_met() -> None:
    """Raises nothing, as pyspark's own does for a package that is new enough."""
