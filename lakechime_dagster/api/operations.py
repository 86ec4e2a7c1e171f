"""The routes of an operator: triggers, executions, tables."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from lakechime_dagster.api.events import Moment
from lakechime_dagster.errors import NotFoundError
from lakechime_dagster.runtime import sources
from lakechime_dagster.runtime.explain import (
    execution_summary,
    explained,
    found_execution,
    trigger_summary,
)
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.runtime.table_summaries import table_summaries
from lakechime_dagster.silver.requests import type_tables
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.triggers.consumers import ExecutionState
from lakechime_dagster.triggers.interventions import Interventions
from lakechime_dagster.triggers.progress import SubscriptionOverview, overview
from lakechime_dagster.triggers.registry import By, SubscriptionRow
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import StartFrom

MAX_PAGE = 1000  # executions of an answer


class Why(BaseModel):
    """Why somebody does something; it is kept with the name of the token."""

    reason: str = Field(description="A sentence for those who look later.")


POINT = "`beginning`, `now`, an ISO time, or a position."


class Replay(Why):
    """What is replayed: what was registered from one point on, and before another."""

    start_from: str = Field(description=POINT)
    up_to: str = Field(default="now", description=POINT)


class Seek(Why):
    """From where a trigger reads on."""

    start_from: str = Field(description=POINT)
    key: str | None = Field(
        default=None, description="The consumer of this key; all consumers unless given."
    )


def operation_routes(
    platform: Platform, lake: Lake, subscriptions: Callable[[], Mapping[str, Subscription]]
) -> APIRouter:
    """The routes of what is declared, or recorded in the store."""
    router = APIRouter()

    def known() -> dict[str, SubscriptionOverview]:
        return {one.row.name: one for one in overview(platform.ledger)}

    def declared(name: str) -> Subscription:
        if (found := subscriptions().get(name)) is None:
            raise NotFoundError(f"no trigger {name!r} is declared here; GET /triggers lists them")
        return found

    def row_of(name: str) -> SubscriptionRow:
        """The subscription as the ledger keeps it; one that is declared but new is activated."""
        return platform.ledger.subscription(name) or platform.evaluator.activate(declared(name))

    @router.get("/triggers", tags=["triggers"])
    def triggers() -> dict[str, Any]:
        """Every trigger with its state, and how many events wait for it."""
        here, recorded = subscriptions(), known()
        return {
            "triggers": [
                trigger_summary(each, here.get(each), recorded.get(each))
                for each in sorted({*here, *recorded})
            ]
        }

    @router.get("/triggers/{name}", tags=["triggers"])
    def trigger(
        name: str,
        at: Moment = None,
        after_key: Annotated[str | None, Query(description="After the key of this text.")] = None,
    ) -> dict[str, Any]:
        """Whether a trigger fires now, or fired at a time, why, and on which events that rests; its
        consumers, a page of its keys, and what people did to it.
        """
        recorded = known().get(name)
        subscription = subscriptions().get(name) if recorded else declared(name)
        found = explained(platform, name, subscription, recorded, at_ms=at, after_key=after_key)
        return found.to_json()

    @router.post("/triggers/{name}/pause", tags=["triggers"])
    def pause(name: str, why: Why, request: Request) -> dict[str, Any]:
        """Stop launching runs, retries included, until resumed. Running ones finish."""
        Interventions(platform.ledger).pause(row_of(name), _by(request, why))
        return {"trigger": name, "paused": True}

    @router.post("/triggers/{name}/resume", tags=["triggers"])
    def resume(name: str, why: Why, request: Request) -> dict[str, Any]:
        """Launch runs again, for all waiting events, as `lakechime trigger resume` does."""
        row, by = row_of(name), _by(request, why)
        moved = sources.resume(platform, subscriptions().get(name), row, by)
        return {"trigger": name, "paused": False, "consumers": sources.moves(moved)}

    @router.post("/triggers/{name}/replay", tags=["triggers"])
    def replay(name: str, range_: Replay, request: Request) -> dict[str, Any]:
        """Launch a run with the events of a range, as `lakechime trigger replay` does; the
        trigger's consumer stays where it is.
        """
        start, end = StartFrom(range_.start_from), StartFrom(range_.up_to)
        by = _by(request, range_)
        execution, events = sources.replay(platform, declared(name), start, end, by)
        return {"execution": execution_summary(execution), "events": events}

    @router.post("/triggers/{name}/seek", tags=["triggers"])
    def seek(name: str, to: Seek, request: Request) -> dict[str, Any]:
        """Move the checkpoints of a trigger's consumers, as `lakechime trigger seek` does: back to
        replay events, forward to leave them out.
        """
        subscription, where = declared(name), StartFrom(to.start_from)
        if where.where == "beginning":
            from lakechime_dagster.cdc.service import check_rebuild  # needs the extra `delta`

            check_rebuild(platform, lake, name)
        by = _by(request, to)
        moved = sources.seek(platform, subscription, where, by, key=to.key)
        return {"trigger": name, "consumers": sources.moves(moved)}

    @router.get("/executions", tags=["executions"])
    def executions(
        trigger: Annotated[str | None, Query(description="Of this trigger.")] = None,
        state: Annotated[ExecutionState | None, Query(description="In this state.")] = None,
        after: Annotated[str | None, Query(description="After the execution of this id.")] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    ) -> dict[str, Any]:
        """Executions, newest claim first; `next` is the `after` of the following ones."""
        found = platform.ledger.executions(
            subscription=trigger, state=state, after=after, limit=limit
        )
        return {
            "executions": [execution_summary(one) for one in found],
            "next": found[-1].execution_id if len(found) == limit else None,
        }

    @router.get("/executions/{execution_id}", tags=["executions"])
    def execution(execution_id: str) -> dict[str, Any]:
        """An execution: what it reads, its attempts and their errors."""
        return {
            "execution": execution_summary(found_execution(platform, execution_id)),
            "attempts": platform.ledger.attempts(execution_id),
        }

    @router.get("/tables", tags=["tables"])
    def tables() -> dict[str, Any]:
        """The tables that are declared, recorded or dropped: what is captured of each, and how far
        that is behind its log, as `lakechime table show` lists them.
        """
        return {"tables": table_summaries(platform, lake, type_tables(platform, lake))}

    return router


def _by(request: Request, why: Why) -> By:
    return By(who=request.state.access.name, reason=why.reason)
