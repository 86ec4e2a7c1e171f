"""What a run is asked to do with the table of a feed's messages: plain values, without Spark."""

from dataclasses import dataclass

from lakechime_dagster.cdc.messages.readers import MessageFormat
from lakechime_dagster.lake.feeds import Feed
from lakechime_dagster.spark.feeds.job import FeedJob


@dataclass(frozen=True, kw_only=True)
class BronzeJob(FeedJob):
    """One execution of a table that holds the messages of a feed, which are read by their format."""

    feed: Feed
    format: MessageFormat
