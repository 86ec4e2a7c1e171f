"""What becomes of a row of a table that follows a database when the database deletes it."""

from lakechime_dagster.compat import StrEnum


class Deletes(StrEnum):
    """Whether it leaves the table (`hard`), or stays with its last values and the time of its deletion (`soft`)."""

    HARD = "hard"
    SOFT = "soft"
