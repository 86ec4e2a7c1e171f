"""How runs begin: as forks of a process that has imported already what all of them import."""

from lakechime_dagster.launch.launcher import ForkedRunLauncher

__all__ = ["ForkedRunLauncher"]
