"""The connection file: what the host of the warm driver reports to its clients, readable without pyspark."""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import mkstemp


@dataclass(frozen=True, kw_only=True)
class WarmFile:
    """What the host tells its clients.

    `generation` numbers the JVMs of this host; `is_up` says that clients are let in, `is_warmed` that Delta has been exercised,
    `is_asleep` that the JVM was ended for want of clients and starts again for the next one.
    """

    host_pid: int
    generation: int
    revision: str
    spark_version: str
    is_up: bool = False
    is_warmed: bool = False
    is_asleep: bool = False
    jvm_pid: int = 0
    port: int = 0
    secret: str = field(default="", repr=False)

    def write(self, home: Path) -> None:
        """Replaces the file in one step."""
        path = warm_file(home)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = mkstemp(prefix=".warm-", dir=path.parent)  # mode 0600
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(asdict(self), stream)
        Path(temporary).replace(path)

    @classmethod
    def read(cls, home: Path) -> "WarmFile | None":
        """The file of this home, or None if there is none that can be understood."""
        try:
            return cls(**json.loads(warm_file(home).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None


def warm_file(home: Path) -> Path:
    return home / "spark" / "warm.json"
