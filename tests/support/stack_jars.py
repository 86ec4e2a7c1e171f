"""The jars of the tests' servers, beside Spark's; `python -m tests.support.stack_jars` fetches them
ahead of the tests.
"""

import sys
from pathlib import Path

from lakechime_dagster.demo.servers import METASTORE_FILE, STACK_FILE, ensure_server_jars
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.spark.jvm import find_java
from tests.support.processes import REPOSITORY

REST_CATALOG_FILE = Path(__file__).with_name("rest_catalog.xml")


def ensure_stack_jars() -> Path:
    """The folder of those of Kafka, Connect and Debezium."""
    return ensure_jars(STACK_FILE)


def ensure_jars(file: Path) -> Path:
    """The folder of those that a file of Ivy asks for.

    Raises:
        LakeChimeError: They cannot be fetched.
    """
    return ensure_server_jars(
        file,
        REPOSITORY / ".lakechime",
        find_java(),
        lambda line: print(line, file=sys.stderr),  # noqa: T201
    )


if __name__ == "__main__":
    try:
        for one in (STACK_FILE, METASTORE_FILE, REST_CATALOG_FILE):
            ensure_jars(one)
    except LakeChimeError as error:
        sys.exit(str(error))
