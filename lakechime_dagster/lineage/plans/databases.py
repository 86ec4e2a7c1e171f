"""Tables of databases that are read by JDBC, by the names that OpenLineage gives them: of the server, and of database and table."""

_SCHEMES = {"postgresql": "postgres", "sqlserver": "mssql", "mariadb": "mysql"}
_PORTS = {"postgres": 5432, "mysql": 3306, "mssql": 1433, "oracle": 1521}
_OF_SCHEMAS = ("mysql",)  # whose tables are named with their database already, where they are named in full
_QUOTES = str.maketrans("", "", '"`[]')


def data_set_of(database: str, table: str) -> tuple[str, str]:
    """The namespace and the name of a table, of which `database` is the address without credentials.

    `postgresql://db/crm` and `public.users` is `postgres://db:5432`, `crm.public.users`.
    """
    name = table.translate(_QUOTES)
    scheme, mark, rest = database.partition("://")
    if not mark:
        return database, name
    scheme = _SCHEMES.get(scheme, scheme)
    host, _, inside = rest.partition("/")
    port = _PORTS.get(scheme)
    host = f"{host}:{port}" if port is not None and ":" not in host else host
    is_whole = not inside or (scheme in _OF_SCHEMAS and "." in name)
    return f"{scheme}://{host}", name if is_whole else f"{inside}.{name}"
