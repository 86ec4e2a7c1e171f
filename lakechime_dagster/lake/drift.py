"""What a table does when the columns of the database's table change."""

from lakechime_dagster.compat import StrEnum


class Drift(StrEnum):
    """Policies for columns that a change brings and the table does not have as they are, by the words of Flink CDC.

    | what is found | EXCEPTION | EVOLVE | TRY_EVOLVE | LENIENT | IGNORE |
    |---|---|---|---|---|---|
    | a new column | refused | added | added | added | left out |
    | values of a wider type | refused | widened | widened | widened | the column stays; rows that do not fit are quarantined |
    | values of another type (a conflict) | refused | refused | the column stays; null where a value cannot be cast | the column stays; \
rows that do not fit are quarantined | the column stays; rows that do not fit are quarantined |
    | a column that is missing | refused | stays, null in new rows | as EVOLVE | as EVOLVE | as EVOLVE |

    A column that got another name is a new one and a missing one. What is refused holds the lane, with nothing changed. No
    policy drops a column: messages do not tell one that was dropped from one that was not there yet. Where rows wait in
    quarantine nothing is lost: they are read again once the table is declared otherwise. A table that is not there yet takes
    all columns by any policy.
    """

    EXCEPTION = "exception"
    EVOLVE = "evolve"
    TRY_EVOLVE = "try_evolve"
    LENIENT = "lenient"
    IGNORE = "ignore"
