"""What all runs import, imported: a process that imports this module is worth forking, and has no second thread, so that it may be."""

import gc

import dagster._cli.api  # noqa: F401 - the command of a run

import lakechime_dagster.definitions  # noqa: F401

gc.collect()
gc.freeze()  # forks share what is here, and their collections need not look at it
