"""dlt in an environment of its own, which is made once and kept."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]


@dataclass
class DltHome:
    """Where the environment is."""

    home: Path = field(default=REPOSITORY / "build" / "dlt")

    @property
    def python(self) -> str:
        return str(self.home / "bin" / "python")

    @property
    def environment(self) -> Mapping[str, str]:
        """Of its processes: our benchmarks can be imported, and nothing is instructed to anyone."""
        wishes = {
            "PYTHONPATH": str(REPOSITORY),
            "RUNTIME__DLTHUB_TELEMETRY": "false",
            "RUNTIME__LOG_LEVEL": "ERROR",
        }
        return os.environ | wishes

    def install(self) -> None:
        """Raises subprocess.CalledProcessError or OSError where it cannot be had."""
        uv = str(Path(sys.executable).parent / "uv")
        environment = os.environ | {"UV_SYSTEM_CERTS": "1"}
        if not Path(self.python).exists():
            subprocess.run(
                [uv, "venv", "-q", "--python", sys.executable, str(self.home)],
                check=True,
                env=environment,
            )
        packages = ["dlt[deltalake,filesystem]", "pyarrow", "orjson"]
        subprocess.run(
            [uv, "pip", "install", "-q", "--python", self.python, *packages],
            check=True,
            env=environment,
        )
