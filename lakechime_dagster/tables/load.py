"""Finds the lake of a project."""

import importlib
from collections.abc import Callable
from typing import NoReturn

from lakechime_dagster.errors import InvalidValueError, LakeChimeError, failures_kept
from lakechime_dagster.tables.lake import Lake

NO_LAKE = (
    "no lake is declared here: run this in a project whose pyproject.toml names its definitions, "
    "or set LAKECHIME_LAKE to your lake as module:attribute; lakechime_dagster.demo.flights:lake "
    "is the demo"
)


def find_lake(
    definitions: str | None, name: str | None, built: Callable[[str], Lake | None]
) -> Lake:
    """The lake of a project: the only one in the module of its definitions, else the one of which
    these are built; or the one of a name.

    Raises:
        LakeChimeError: neither is given, the lake cannot be found, or the definitions hold none or
            several.
    """
    if definitions:
        return lake_in(definitions) or built(definitions) or _no_lake_in(definitions)
    if name:
        return load_lake(name)
    raise LakeChimeError(NO_LAKE)


def load_lake(name: str) -> Lake:
    """The lake that LAKECHIME_LAKE names; event groups whose declaration is wrong are in it with
    their `problem`.

    Raises:
        InvalidValueError: when the module or the attribute is not there, or is no Lake.
    """
    module, _, attribute = name.partition(":")
    try:
        with failures_kept():
            found = getattr(importlib.import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise InvalidValueError(
            "LAKECHIME_LAKE", name, f"names no module {module}; is it installed or on PYTHONPATH?"
        ) from None
    if not isinstance(found, Lake):
        raise InvalidValueError(
            "LAKECHIME_LAKE", name, f"{module} has no Lake of the name {attribute}"
        )
    return found


def lake_in(module: str) -> Lake | None:
    """The only lake among the names of a module; None where there is none.

    Raises:
        InvalidValueError: it has several.
    """
    with failures_kept():
        found = {
            id(value): value
            for value in vars(importlib.import_module(module)).values()
            if isinstance(value, Lake)
        }
    if len(found) > 1:
        raise InvalidValueError(
            "LAKECHIME_LAKE",
            "",
            f"is not set, and {module} has {len(found)} lakes; set it to yours, as module:attribute",
        )
    return next(iter(found.values()), None)


def _no_lake_in(module: str) -> NoReturn:
    remedy = f"is not set, and {module} has no lake; set it to yours, as module:attribute"
    raise InvalidValueError("LAKECHIME_LAKE", "", remedy)
