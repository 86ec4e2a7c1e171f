"""What a table does when the columns of the database's table change."""

from lakechime_dagster.compat import StrEnum


class Drift(StrEnum):
    """Policies for columns that a change brings and the table does not have as they are, by the words of Flink CDC.

    | what is found | EXCEPTION | EVOLVE | LENIENT | IGNORE |
    |---|---|---|---|---|
    | a new column | refused | added | added | left out |
    | values of a wider type | refused | widened | widened | the column stays; rows that do not fit are quarantined |
    | values that no other type holds with those before | refused | refused | the column becomes text | as of a wider type |
    | a column that is missing | refused | stays, null in new rows | as EVOLVE | as EVOLVE |

    A column that got another name is a new one and a missing one. What is refused holds the lane, with nothing changed. No
    policy drops a column: messages do not tell one that was dropped from one that was not there yet. Where rows wait in
    quarantine nothing is lost: they are read again once the table is declared otherwise. A table that is not there yet takes
    all columns by any policy. A column of the key never becomes text: values of several types may have the same one.

    By EVOLVE and LENIENT the rows are the same whatever the order and the steps in which messages arrive. By IGNORE the first
    step decides which columns the table has.
    """

    EXCEPTION = "exception"
    EVOLVE = "evolve"
    LENIENT = "lenient"
    IGNORE = "ignore"
