"""What the maintenance of a type's table must leave: the commit in its log that tells up to where the type was read."""

import datetime as dt
import math
from dataclasses import replace

from lakechime_dagster.lake.maintenance import Maintenance
from lakechime_dagster.lake.maintenance_plan import TableFiles
from lakechime_dagster.lake.retention_properties import DEFAULTS, LOG, log_kept

DAY = dt.timedelta(days=1)


def keeping_words(policy: Maintenance, files: TableFiles, told: int | None, now: int) -> Maintenance:
    """The policy of a table whose log keeps the newest commit of its group, also where that is old.

    Each commit of maintenance may let go of what is older than the log keeps, and a type that is not written any more makes no newer
    one that tells its place. The log is set to keep it for so long that it need not be set again at each look. `told` is when that
    commit was made, None where the log holds none; in milliseconds, as `now`.
    """
    if told is None:
        return policy
    age, ahead = dt.timedelta(milliseconds=now - told), DEFAULTS[LOG]
    if log_kept({**files.properties, **policy.properties}) >= age + ahead / 2:
        return policy
    return replace(policy, properties={**policy.properties, LOG: f"interval {math.ceil((age + ahead) / DAY)} days"})
