"""Asset keys of tables."""

import dagster as dg

from lakechime_dagster.resources.names import asset_name


def asset_key(table: str) -> dg.AssetKey:
    """The asset key of a table: its name split at dots."""
    return dg.AssetKey.from_user_string(asset_name(table))
