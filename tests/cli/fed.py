"""A flow that reads files of a folder beside the project, as a code location declares it."""

from lakechime_dagster.lake import JsonLines
from lakechime_dagster.resources.lakechime_resource import declare_flow
from lakechime_dagster.triggers import SnapshotTrigger
from lakechime_dagster.triggers.flow import Flow

NAME = "landing.messages"

fed = declare_flow(Flow(name=NAME, trigger=SnapshotTrigger(), feed=JsonLines("in")))
