"""The network of lineage for a process that answers people: always ready, and near to what the store has."""

import logging
import threading
import time

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lineage.graph.neighbourhood import neighbourhood
from lakechime_dagster.lineage.graph.network import Network
from lakechime_dagster.store.lineage.network import CurrentNetwork

logger = logging.getLogger(__name__)
QUICK_SECONDS = 0.1  # what takes no longer is done while somebody waits for the answer
PAUSE_SECONDS = 2.0


class ReadyNetwork:
    """A network that is read before anybody asks.

    Where following the store is quick, whoever asks has what the store has at this moment. Where it is not, as with a hundred
    thousand tables, they have what was read last, and the thread of `keep` is some seconds behind the store.
    """

    def __init__(self, current: CurrentNetwork, quick_seconds: float = QUICK_SECONDS) -> None:
        self._current, self._quick = current, quick_seconds
        self._lock = threading.Lock()
        self._ready: Network | None = None
        self._seconds = 0.0  # that it took to read the network that is ready

    def network(self) -> Network:
        """The network that is ready; the first one is waited for."""
        ready = self._ready
        if ready is None or self._seconds <= self._quick:
            return self.follow()
        return ready

    def follow(self) -> Network:
        """What the store has at this moment, with all that a first question would have to sort."""
        with self._lock:
            began = time.monotonic()
            network = self._current.network()
            if network is not self._ready:
                warm(network)
                self._seconds = time.monotonic() - began
                self._ready = network
            return network

    def keep(self, stop: threading.Event, pause: float = PAUSE_SECONDS) -> None:
        """Follow the store until told to stop; a store that is away for a while is asked again."""
        while not stop.is_set():
            try:
                self.follow()
            except LakeChimeError as error:
                logger.warning("lineage could not be read: %s", error)
            stop.wait(pause)


def warm(network: Network) -> None:
    """Sort the edges of a network once, which the first question about it would wait for."""
    if network.tables:
        neighbourhood(network, next(iter(network.tables)))
        for side in (network, network.backwards):
            for one in (side.direct, side.indirect, side.maybe):
                one.next_of(network.datasets[:1])
