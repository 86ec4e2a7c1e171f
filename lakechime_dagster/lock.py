"""A lock between processes on one machine, which the kernel releases when its holder dies."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, seconds: float | None = None) -> Iterator[None]:
    """Holds the lock of this file, which is made if needed and stays.

    Args:
        path: The file; its folder exists.
        seconds: How long to wait for another holder; without end if None.

    Raises:
        TimeoutError: another process held it all that time.
    """
    with path.open("a") as stream:
        if seconds is None:
            fcntl.flock(stream, fcntl.LOCK_EX)
        else:
            _lock_until(stream.fileno(), time.monotonic() + seconds)
        yield


def _lock_until(file: int, end: float) -> None:
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise TimeoutError from None
            time.sleep(0.02)
        else:
            return
