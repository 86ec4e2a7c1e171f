"""Parameters of a table's function beside its inputs: what Dagster is asked to give, and what the asset gives itself."""

import inspect
from collections.abc import Mapping
from typing import Any

import dagster as dg

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.lake.tables import LakeTable
from lakechime_dagster.resources.keys import asset_key
from lakechime_dagster.resources.names import op_name


def with_signature(body: Any, table: LakeTable) -> Any:
    """The body with the parameters that Dagster should give: its own, and those that the table's function asks for.

    Raises:
        DeclarationError: the function calls something else by the name of one of ours.
    """
    own = {one.name: one for one in inspect.signature(body).parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD}
    asked = []
    for one in table.injected:
        if one.name not in own:
            asked.append(inspect.Parameter(one.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=one.annotation))
        elif one.name != "context" and one.annotation is not (ours := own[one.name].annotation):
            remedy = f"is the {ours.__name__} of this package; annotate it so, or give it another name"
            raise DeclarationError(table.name, f"parameter {one.name!r}", remedy)
    body.__signature__ = inspect.Signature([*own.values(), *asked])
    body.__annotations__ = {parameter.name: parameter.annotation for parameter in body.__signature__.parameters.values()}
    body.__name__ = op_name(table.name)
    body.__doc__ = table.description
    return body


def shared_with(table: LakeTable, own: Mapping[str, Any]) -> dict[str, Any]:
    """What of the body's own parameters the table's function asks for too."""
    return {one.name: own[one.name] for one in table.injected if one.name in own}


def check_inputs(table: LakeTable, asset: dg.AssetsDefinition) -> None:
    """Refuse a parameter that Dagster takes for one more input, as it is nothing else to it.

    Raises:
        DeclarationError: naming the parameter.
    """
    strange = set(asset.dependency_keys) - {asset_key(name) for name in table.inputs}
    for one in table.injected:
        if asset_key(one.name) in strange:
            remedy = "is no input, `context`, `config` or resource by its annotation; give it a default, or leave it out"
            raise DeclarationError(table.name, f"parameter {one.name!r}", remedy)
