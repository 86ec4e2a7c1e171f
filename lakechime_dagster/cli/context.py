"""What commands work on: the platform and the declared flows, imported only when a command asks for them."""

import difflib
import importlib
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, TypeVar

from lakechime_dagster.errors import LakeChimeError, NotFoundError, shown
from lakechime_dagster.settings import Settings, lake_name, load_settings, own_definitions, project_folder

if TYPE_CHECKING:
    from lakechime_dagster.lake import ChangeTable, Lake
    from lakechime_dagster.resources.platform import Platform
    from lakechime_dagster.store.ledger_rows import FlowRow
    from lakechime_dagster.triggers.flow import Flow

Result = TypeVar("Result")


def open_platform(*, dry_run: bool = False) -> "Platform":
    """Store, ledger and table logs of this deployment; for a dry run nothing is made that is not there."""
    from lakechime_dagster.resources import platform

    return platform.open_dry_platform() if dry_run else platform.open_platform()


def declared_flows(module: str | None = None, *, manual: bool = False) -> dict[str, "Flow"]:
    """The flows that are declared here: the lake's, or those that another module declares as it is imported.

    A table of the lake without a trigger has a flow too, for the runs that a person launches; `manual` includes it.

    Raises:
        LakeChimeError: the module cannot be imported; its own message is in it.
    """
    if module is not None:
        _loaded(f"the triggers of {module}", lambda: importlib.import_module(module))
        from lakechime_dagster.resources.lakechime_resource import declared_flows as declared

        return declared()
    settings = load_settings()
    if own := own_definitions(settings):
        return _loaded(f"the definitions of {own}", lambda: _flows_of_definitions(own))
    from lakechime_dagster.assets.flows import flow_of, group_flow, log_flow
    from lakechime_dagster.lineage.planned.manifest import manifest_in
    from lakechime_dagster.lineage.planned.unread import unread_columns

    lake = declared_lake(settings)
    unread = unread_columns(lake, manifest_in(project_folder()))
    tables = [table for table in lake.targets if manual or table.trigger is not None]
    flows = {table.name: flow_of(table, settings.cluster, unread.get(table.name)) for table in tables}
    flows |= {group.name: group_flow(lake, group, settings.cluster) for group in lake.groups}
    logs = [log_flow(one, settings.cluster) for one in lake.query_logs]
    return flows | {flow.name: flow for flow in logs}


def _flows_of_definitions(module: str) -> "dict[str, Flow]":
    """The flows that a project's definitions declare; those that are made by a function are made, as Dagster does."""
    import dagster as dg

    from lakechime_dagster.resources.lakechime_resource import declared_flows as declared

    lazy: type = type(dg.definitions(lambda: dg.Definitions()))
    for value in list(vars(importlib.import_module(module)).values()):
        if isinstance(value, lazy):
            value()
    return declared()


def declared_lake(settings: Settings) -> "Lake":
    """The lake that LAKECHIME_LAKE names, else the one in the project's own definitions.

    Raises:
        LakeChimeError: there is none, or it cannot be loaded.
    """
    from lakechime_dagster.lake.load import find_lake

    own, name = own_definitions(settings), lake_name(settings)
    return _loaded(f"the lake of {own}" if own else f"the lake {name}", lambda: find_lake(own, name))


def followed_tables(settings: Settings) -> "list[ChangeTable]":
    """The tables of the lake that follow a database."""
    from lakechime_dagster.lake.change_tables import ChangeTable

    return [table for table in declared_lake(settings).tables if isinstance(table, ChangeTable)]


def followed_table(name: str, settings: Settings) -> "ChangeTable":
    """The one of that name.

    Raises:
        NotFoundError: naming the one that is nearest, or those that are there.
    """
    tables = {table.name: table for table in followed_tables(settings)}
    if name not in tables:
        near = difflib.get_close_matches(name, tables, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(tables)) or 'none'}"
        raise NotFoundError(f"the lake declares no table {shown(name)} that follows a database; {remedy}")
    return tables[name]


def flow_declared(name: str, module: str | None, *, manual: bool = False) -> "Flow":
    """The declared flow of that name.

    Raises:
        NotFoundError: naming those that are there.
    """
    flows = declared_flows(module, manual=manual)
    if name not in flows:
        raise NotFoundError(f"no trigger {name!r} is declared here; there are {', '.join(sorted(flows)) or 'none'}")
    return flows[name]


def group_problem(name: str, module: str | None) -> str:
    """What is wrong with the declaration of the lake's event group of that name; empty for any other trigger."""
    if module is not None:
        return ""
    try:
        groups = declared_lake(load_settings()).groups
    except LakeChimeError:  # of a project that has triggers and no lake
        return ""
    return next((group.problem for group in groups if group.name == name), "")


def flow_known(platform: "Platform", name: str, module: str | None, *, dry_run: bool = False) -> "FlowRow":
    """The flow as the ledger keeps it; one that is declared but new is activated, in a dry run only imagined."""
    from lakechime_dagster.resources.explain import inactive

    if (known := platform.ledger.flow(name)) is not None:
        return known
    flow = flow_declared(name, module, manual=True)
    return inactive(platform, flow) if dry_run else platform.evaluator.activate(flow)


def _loaded(what: str, load: Callable[[], Result]) -> Result:
    """What a user's module declares; what it prints while it is imported does not mix with a command's result."""
    root = project_folder()
    for folder in (str(root), str(root / "src")):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    try:
        with redirect_stdout(sys.stderr):
            return load()
    except LakeChimeError:
        raise
    except Exception as error:
        raise LakeChimeError(f"{what} cannot be loaded: {type(error).__name__}: {error}") from error
