"""What a table's function may ask for beside its inputs, and what it is then given."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import dagster as dg
import pytest

from lakechime_dagster.assets.subscriptions import subscription_of
from lakechime_dagster.assets.tables import table_asset
from lakechime_dagster.dce.events import SnapshotId
from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.runtime.platform import open_platform
from lakechime_dagster.runtime.resource import (
    LakeChimeResource,
    NothingNewError,
    declare_subscription,
)
from lakechime_dagster.runtime.spark import SparkResource
from lakechime_dagster.tables.declare import spark_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.tables import LakeTable, SourceTable
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.factories import make_event

if TYPE_CHECKING:
    from dagster import AssetExecutionContext

orders = SourceTable("bronze.orders")
given: list[Any] = []


class Computing(SparkResource):
    """Spark that only calls the function of a table."""

    def refresh(self, running: Any, job: Any, log: Any, write_as: Any, observer: Any) -> Any:
        given.append(job.compute(**{one.alias: one.table for one in job.inputs}))
        raise NothingNewError("nothing to do")


class Mail(dg.ConfigurableResource):
    """A resource of the user's own."""


class Limits(dg.Config):
    """A config of the user's own."""

    most: int = 3


def by(compute: Callable[..., Any]) -> LakeTable:
    return spark_table(
        "silver.orders", reads={"orders": orders.changes()}, trigger=SnapshotTrigger()
    )(compute)


def of_ours(orders: Any, spark: SparkResource, lakechime: "LakeChimeResource") -> Any:
    return (orders, spark.__class__, lakechime.__class__)


def of_its_own(context: Any, orders: Any, mail: "Mail", config: Limits, rounds: int = 5) -> Any:
    return (context.run.run_id != "", mail.__class__, config.most, rounds)


def with_defaults(
    orders: Any,
    context: "AssetExecutionContext | None" = None,
    mail: "Mail | None" = None,
    config: Limits | None = None,
    lakechime: Optional[LakeChimeResource] = None,  # noqa: UP045 - as people write it, too
    rounds: "int | None" = None,
) -> Any:
    return (
        context is not None and context.run.run_id != "",
        mail.__class__,
        config and config.most,
        lakechime.__class__,
        rounds,
    )


@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        (of_ours, ("bronze.orders", Computing, LakeChimeResource)),
        (of_its_own, (True, Mail, 3, 5)),
        (with_defaults, (True, Mail, 3, LakeChimeResource, None)),
    ],
)
def test_a_function_is_given_what_it_asks_for(
    compute: Callable[..., Any], expected: object, home: Path
) -> None:
    table = by(compute)
    asset = table_asset(
        Lake("shop", [orders, table]), table, declare_subscription(subscription_of(table))
    )
    open_platform().store.register([make_event(orders.name, snapshot_id=SnapshotId("1"))])
    given.clear()
    dg.materialize(
        [asset], resources={"lakechime": LakeChimeResource(), "spark": Computing(), "mail": Mail()}
    )
    assert given == [expected]


def of_another_spark(orders: Any, spark: Mail) -> Any: ...


def of_a_number(orders: Any, threshold: int) -> Any: ...


def of_another_context(orders: Any, ctx: dg.AssetExecutionContext) -> Any: ...


def of_another_context_by_default(
    orders: Any, ctx: dg.AssetExecutionContext | None = None
) -> Any: ...


def of_nobody(orders: Any, mail: "Nowhere") -> Any: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("compute", "reported"),
    [
        (
            of_another_spark,
            (
                "parameter 'spark': is the SparkResource of this package; annotate it so, or give it "
                "another name"
            ),
        ),
        (
            of_a_number,
            (
                "parameter 'threshold': is no input, `context`, `config` or resource by its "
                "annotation; give it a default"
            ),
        ),
        (of_another_context, "parameter 'ctx': is no input, `context`"),
        (of_another_context_by_default, "parameter 'ctx': is no input, `context`"),
        (
            of_nobody,
            'dagster: Dagster refuses the asset: Failed to resolve type annotation "Nowhere"',
        ),
    ],
)
def test_a_parameter_that_nobody_could_give_is_refused_by_its_name(
    compute: Callable[..., Any], reported: str
) -> None:
    with pytest.raises(DeclarationError, match=re.escape(f"silver.orders, {reported}")):
        build_definitions(Lake("shop", [orders, by(compute)]))
