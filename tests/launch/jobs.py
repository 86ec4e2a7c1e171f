"""A code location of jobs that say how they run."""

import os
import sys
import time

import dagster as dg

PRELOADED = "lakechime_dagster.definitions" in sys.modules  # when this was imported


@dg.op
def say(context: dg.OpExecutionContext) -> None:
    context.log.info(f"preloaded: {PRELOADED}, parent: {os.getppid()}")


@dg.op
def wait(context: dg.OpExecutionContext) -> None:
    context.log.info("I wait")
    try:
        time.sleep(600)
    finally:
        context.log.info("I clean up")


@dg.job
def says() -> None:
    say()


@dg.job
def waits() -> None:
    wait()


defs = dg.Definitions(jobs=[says, waits], executor=dg.in_process_executor)
