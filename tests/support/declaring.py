"""Declarations of tables with their options side by side, for factories of tests that name only
what matters.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from lakechime_dagster.tables.cdc import CDCMerge, SourceSchema
from lakechime_dagster.tables.options import Asset, Storage

OBJECTS: Mapping[str, type] = {"storage": Storage, "asset": Asset, "schema": SourceSchema}


def grouped(**options: Any) -> dict[str, Any]:
    """What `spark_table`, `sql_table` and `cdc_table` take: fields of option objects in these,
    those of a merge in `merge`.
    """
    given = dict(options)
    for parameter, kind in OBJECTS.items():
        names = {one.name for one in fields(kind)}
        own = {name: given.pop(name) for name in list(given) if name in names}
        if own:
            given[parameter] = kind(**own)
    merge = given.get("merge")
    if isinstance(merge, CDCMerge):
        names = {one.name for one in fields(merge)}
        given["merge"] = replace(
            merge, **{name: given.pop(name) for name in list(given) if name in names}
        )
    return given
