"""A subscription that reads files of a folder beside the project, as a code location declares
it.
"""

from lakechime_dagster.runtime.resource import declare_subscription
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import SnapshotTrigger

NAME = "landing.messages"

fed = declare_subscription(
    Subscription(name=NAME, trigger=SnapshotTrigger(), source=JsonLines("in"))
)
