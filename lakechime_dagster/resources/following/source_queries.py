"""Whether this deployment may ask business databases anything."""

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.settings import Settings

QUERIES_OFF = "LAKECHIME_SOURCE_QUERIES is off, so that no database is asked"


def check_source_queries(settings: Settings) -> None:
    """Refuse to go on where databases may not be asked.

    Raises:
        LakeChimeError: they may not.
    """
    if not settings.may_ask_sources:
        raise LakeChimeError(f"{QUERIES_OFF}; set it to on")
