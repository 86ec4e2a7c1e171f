"""The schema repository of a deployment, which lies in its store."""

from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.store.event_types import SqlEventTypes


def event_types(platform: Platform) -> SqlEventTypes:
    """The types of events of this deployment's groups."""
    return SqlEventTypes(platform.store.engine, platform.settings.deployment)
