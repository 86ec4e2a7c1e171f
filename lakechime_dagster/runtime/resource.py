"""The Dagster resource by which any asset or op gets its execution."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

import dagster as dg
from dagster_shared.libraries import DagsterLibraryRegistry

from lakechime_dagster.errors import ConsumerConflictError, InvalidValueError, NotFoundError
from lakechime_dagster.triggers.subscription import Subscription

if TYPE_CHECKING:
    from lakechime_dagster.dce.store import DCEStore
    from lakechime_dagster.runtime.execution import RunningExecution
    from lakechime_dagster.runtime.platform import Platform
    from lakechime_dagster.tables.lake import Lake

DagsterLibraryRegistry.register(
    "lakechime-dagster", version("lakechime-dagster"), is_dagster_package=False
)

RunContext = dg.AssetExecutionContext | dg.OpExecutionContext
# the subscriptions of this code location, by name; filled as it is loaded
_SUBSCRIPTIONS: dict[str, Subscription] = {}
_LAKES: "dict[str, Lake]" = {}  # the lakes of this code location, likewise


class NothingNewError(ConsumerConflictError):
    """There is nothing to do for this run: there is no new event, or the execution is complete."""


def declare_subscription(subscription: Subscription) -> Subscription:
    """Make a subscription known to the runs of this code location; the newest declaration of a name
    holds.
    """
    _SUBSCRIPTIONS[subscription.name] = subscription
    return subscription


def declared_subscriptions() -> dict[str, Subscription]:
    """The subscriptions of this code location by name."""
    return dict(_SUBSCRIPTIONS)


def declare_lake(lake: "Lake") -> None:
    """Make a lake known to commands; the newest declaration of a name holds."""
    _LAKES[lake.name] = lake


def load_definitions(module: str) -> None:
    """Import the module of a project's definitions; those that are made by a function are made, as
    Dagster does.
    """
    lazy: type = type(dg.definitions(lambda: dg.Definitions()))
    for value in list(vars(import_module(module)).values()):
        if isinstance(value, lazy):
            value()


def lake_of_definitions(module: str) -> "Lake | None":
    """The only lake of which the definitions of a module are made; None where there is none.

    Raises:
        InvalidValueError: there are several.
    """
    load_definitions(module)
    if len(_LAKES) > 1:
        remedy = (
            f"is not set, and {module} has the lakes {', '.join(sorted(_LAKES))}; set it to one of "
            f"them, as module:attribute"
        )
        raise InvalidValueError("LAKECHIME_LAKE", "", remedy)
    return next(iter(_LAKES.values()), None)


def subscription_named(name: str) -> Subscription:
    """The subscription of that name in this code location."""
    if name not in _SUBSCRIPTIONS:
        raise NotFoundError(
            f"no subscription {name!r} is declared in this code location; it has "
            f"{', '.join(sorted(_SUBSCRIPTIONS)) or 'none'}"
        )
    return _SUBSCRIPTIONS[name]


class LakeChimeResource(dg.ConfigurableResource):
    """Hands a run its execution. Everything else is in LAKECHIME_* settings."""

    def platform(self) -> "Platform":
        """Store, ledger and table logs of this process."""
        from lakechime_dagster.runtime.platform import open_platform

        return open_platform()

    @contextmanager
    def execution(
        self, context: RunContext, subscription: str | None = None, *, partition: str | None = None
    ) -> "Iterator[RunningExecution]":
        """Begin the execution that this run was launched for; a run without our tags adopts or
        claims one.

        `partition` is the Dagster partition key, by default the run's own.

        Raises:
            NothingNewError: the execution is complete, or there are no new events: report that and
                end.
            NotFoundError: no tick of the schedule up to now has the partition.
            ConsumerConflictError: another run is at it; the message names it.
        """
        from lakechime_dagster.runtime.execution import RunningExecution, begun, kept

        platform = self.platform()
        found, execution = begun(platform, context, subscription, partition)
        target = platform.target_of(found)
        running = RunningExecution(platform, found, execution)
        with kept(running, target, context.log.info):
            yield running


# one for all: Dagster merges definitions only if a resource of one name is one object
LAKECHIME = LakeChimeResource()


def open_store() -> "DCEStore":
    """The DCE store of this deployment, as LAKECHIME_* settings and `.env` name it; it is created,
    or upgraded, where that is needed.

    `open_store().register([DataChangeEvent(table="bronze.orders", snapshot_id="17")])` reports
    changes, and `open_store().fetch(EventQuery(table="bronze.orders"))` reads them.
    """
    from lakechime_dagster.runtime.platform import open_platform

    return open_platform().store
