"""The routes of triggers: list, explain, pause, resume."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from lakechime_dagster.errors import NotFoundError
from lakechime_dagster.runtime import sources
from lakechime_dagster.runtime.explain import explained, trigger_summary
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.triggers.interventions import By, Interventions
from lakechime_dagster.triggers.progress import SubscriptionOverview, overview
from lakechime_dagster.triggers.registry import SubscriptionRow
from lakechime_dagster.triggers.subscription import Subscription


class Why(BaseModel):
    """Why somebody does something; it is kept with the name of the token."""

    reason: str = Field(description="A sentence for those who look later.")


def trigger_routes(
    platform: Platform, declared: Callable[[], Mapping[str, Subscription]]
) -> APIRouter:
    """The routes of the triggers that are declared, or recorded in the store."""
    router = APIRouter(prefix="/triggers", tags=["triggers"])

    def known() -> dict[str, SubscriptionOverview]:
        return {one.row.name: one for one in overview(platform.ledger)}

    def row_of(name: str) -> SubscriptionRow:
        """The subscription as the ledger keeps it; one that is declared but new is activated."""
        if (row := platform.ledger.subscription(name)) is not None:
            return row
        subscriptions = declared()
        if name not in subscriptions:
            raise _unknown(name)
        return platform.evaluator.activate(subscriptions[name])

    @router.get("")
    def triggers() -> dict[str, Any]:
        """Every trigger with its state, and how many events wait for it."""
        subscriptions, recorded = declared(), known()
        return {
            "triggers": [
                trigger_summary(each, subscriptions.get(each), recorded.get(each))
                for each in sorted({*subscriptions, *recorded})
            ]
        }

    @router.get("/{name}")
    def trigger(
        name: str,
        at: Annotated[
            int | None, Query(description="Milliseconds since the epoch; now by default.")
        ] = None,
    ) -> dict[str, Any]:
        """Whether a trigger fires, or fired at a time, why, and on which events that rests; its
        consumers, and what people did to it.
        """
        subscription, recorded = declared().get(name), known().get(name)
        if subscription is None and recorded is None:
            raise _unknown(name)
        return explained(platform, name, subscription, recorded, at_ms=at).to_json()

    @router.post("/{name}/pause")
    def pause(name: str, why: Why, request: Request) -> dict[str, Any]:
        """Stop launching runs, retries included, until resumed. Running ones finish."""
        Interventions(platform.ledger).pause(row_of(name), _by(request, why))
        return {"trigger": name, "paused": True}

    @router.post("/{name}/resume")
    def resume(name: str, why: Why, request: Request) -> dict[str, Any]:
        """Launch runs again, for all waiting events, as `lakechime trigger resume` does."""
        sources.resume(platform, declared().get(name), row_of(name), _by(request, why))
        return {"trigger": name, "paused": False}

    return router


def _by(request: Request, why: Why) -> By:
    return By(who=request.state.access.name, reason=why.reason)


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(f"no trigger {name!r} is declared here; GET /triggers lists them")
