"""Tokens of the HTTP server in the store, which keeps their hashes only."""

import hashlib
import secrets
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.api.access import Access, Scope
from lakechime_dagster.dce.engine import insert_if_absent, now_ms, reading, writing
from lakechime_dagster.dce.partitions import checked_text
from lakechime_dagster.dce.schema import DOCUMENT, metadata
from lakechime_dagster.errors import InvalidValueError, NotFoundError
from lakechime_dagster.triggers.registry import By

token_table = sa.Table(
    "lc_api_token",
    metadata,
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("hash", sa.String(64), nullable=False, unique=True),
    sa.Column("scopes", DOCUMENT, nullable=False),
    sa.Column("tables", DOCUMENT, nullable=False),
    sa.Column("created_ts", sa.BigInteger, nullable=False),
    sa.Column("created_by", sa.String(128), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("revoked_ts", sa.BigInteger),
    sa.Column("revoked_by", sa.String(128)),
)
IS_VALID = token_table.c.revoked_ts.is_(None)


class Tokens:
    """The tokens of a store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(self, name: str, scopes: Collection[Scope], tables: Sequence[str], by: By) -> str:
        """Make a token and return its secret, which nobody can be shown again.

        Raises:
            InvalidValueError: a token of that name exists, or existed.
        """
        checked_text("name", name, limit=128)
        for pattern in tables:
            checked_text("table", pattern)
        secret = secrets.token_urlsafe(32)
        with writing(self._engine) as connection:
            made = insert_if_absent(connection, token_table).values(
                name=name,
                hash=_hashed(secret),
                scopes=sorted(scopes),
                tables=list(tables),
                created_ts=now_ms(connection),
                created_by=by.who,
                reason=by.reason,
            )
            if not connection.execute(made).rowcount:
                raise InvalidValueError("name", name, "is taken; choose another")
        return secret

    def revoke(self, name: str, by: By, *, dry_run: bool = False) -> None:
        """Let a token do nothing any more; one that is revoked stays so.

        Raises:
            NotFoundError: there is none of that name.
        """
        this = token_table.c.name == name
        with writing(self._engine) as connection:
            if connection.execute(sa.select(token_table).where(this)).first() is None:
                raise NotFoundError(
                    f"there is no token {name!r}; `lakechime token show` lists them"
                )
            if not dry_run:
                revoking = sa.update(token_table).where(this, IS_VALID)
                revoked = {"revoked_ts": now_ms(connection), "revoked_by": by.who}
                connection.execute(revoking.values(revoked))

    def all(self) -> list[dict[str, Any]]:
        """Every token by its name, the revoked ones too; never its secret."""
        columns = [column for column in token_table.c if column.name != "hash"]
        with reading(self._engine) as connection:
            rows = connection.execute(sa.select(*columns).order_by(token_table.c.name))
            return [dict(row) for row in rows.mappings()]

    def any_valid(self) -> bool:
        """Whether a token exists that is not revoked."""
        return self._valid() is not None

    def access(self, secret: str) -> Access | None:
        """What a secret lets its bearer do; None of one that is unknown or revoked."""
        row = self._valid(token_table.c.hash == _hashed(secret))
        if row is None:
            return None
        return Access(row.name, frozenset(map(Scope, row.scopes)), tuple(row.tables))

    def _valid(self, *where: sa.ColumnElement[bool]) -> sa.Row[Any] | None:
        """A token that is not revoked."""
        query = sa.select(token_table).where(IS_VALID, *where).limit(1)
        with reading(self._engine) as connection:
            return connection.execute(query).first()


def _hashed(secret: str) -> str:
    """The secret has 256 random bits, so that no slow hash is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()
