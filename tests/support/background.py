"""Something that goes on beside a test."""

import threading
from abc import ABC, abstractmethod

from typing_extensions import Self


class Background(ABC):
    """Takes one turn after another in a thread of its own, until its context ends; what a turn
    raises is raised there.

    Args:
        pause: Seconds between two turns.
    """

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.close()
        self.expect_health()

    @abstractmethod
    def turn(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Let go of what the turns needed."""

    def expect_health(self) -> None:
        """Raises what a turn raised, after which there was none."""
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            while not self._stop.wait(self._pause):
                self.turn()
        except BaseException as error:  # noqa: BLE001 - whoever waits raises it
            self._error = error
