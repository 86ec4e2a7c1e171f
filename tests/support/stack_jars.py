"""The jars of the capture stack, beside Spark's; `python -m tests.support.stack_jars` fetches them
ahead of the tests.
"""

import sys
from pathlib import Path

from lakechime_dagster.demo.servers import ensure_server_jars
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.spark.jvm import find_java
from tests.support.processes import REPOSITORY


def ensure_stack_jars() -> Path:
    """Their folder.

    Raises:
        LakeChimeError: They cannot be fetched.
    """
    return ensure_server_jars(
        REPOSITORY / ".lakechime",
        find_java(),
        lambda line: print(line, file=sys.stderr),  # noqa: T201
    )


if __name__ == "__main__":
    try:
        ensure_stack_jars()
    except LakeChimeError as error:
        sys.exit(str(error))
