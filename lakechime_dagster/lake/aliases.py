"""What other engines call the tables of a lake."""

from collections.abc import Collection, Mapping

from lakechime_dagster.errors import DeclarationError, shown

EVERY = ".*"  # at the end of an alias: all names below


def checked_aliases(lake: str, aliases: Mapping[str, str], tables: Collection[str]) -> dict[str, str]:
    """The declared aliases.

    Raises:
        DeclarationError: one means no table of the lake, or all names below for one table.
    """
    for said, meant in aliases.items():
        field = f"aliases[{shown(said)}]"
        if not isinstance(said, str) or not isinstance(meant, str) or not said or not meant:
            raise DeclarationError(
                f"Lake {lake}", field, "must be a name that means a name, such as {'hive.bronze.flights': 'bronze.flights'}"
            )
        if said.endswith(EVERY) != (meant == "*" or meant.endswith(EVERY)):
            problem = f"means {shown(meant)}; end both with .*, or neither, such as {{'hive.*': '*'}}"
            raise DeclarationError(f"Lake {lake}", field, problem)
        if not said.endswith(EVERY) and meant not in tables:
            raise DeclarationError(
                f"Lake {lake}", field, f"means {shown(meant)}, which is not in the lake; it has {', '.join(sorted(tables))}"
            )
    return dict(aliases)
