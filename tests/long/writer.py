"""Random changes of a table's rows, a transaction after another; between two of them comes what the
test asks for.
"""

import datetime as dt
import queue
import random
import threading
from collections.abc import Callable, Iterator

from tests.long.databases import PARTED, Database
from tests.long.schema_changes import EMPTIED, Columns, Statements
from tests.support.background import Background

PAUSE_SECONDS = 0.4  # between two transactions
LONG_TEXT = 4_000  # letters, which PostgreSQL keeps apart
SHARE_UNDONE = 0.1  # of the transactions


class Writer(Background):
    """Changes rows of one database until it is instructed to stop; what it does is known from its
    dice.
    """

    def __init__(self, database: Database, dice: random.Random) -> None:
        super().__init__(PAUSE_SECONDS)
        self.database, self._dice = database, dice
        self.columns = Columns()
        self.transactions, self.changes = 0, 0
        self._ids: set[int] = set()
        self._asked: queue.Queue[tuple[Callable[[], None], threading.Event]] = queue.Queue()
        self._session = database.session()

    def turn(self) -> None:
        """What was asked for, and one transaction."""
        while not self._asked.empty():
            job, done = self._asked.get()
            job()
            done.set()
        self._write()

    def close(self) -> None:
        self._session.close()

    def change_schema(self, name: str, statements: Statements) -> bool:
        """Whether there was anything to do that to."""
        done: list[bool] = []

        def change() -> None:
            statement = statements(self.columns)
            if statement is not None:
                self._session.run(statement)
                self._ids -= self._ids & set(EMPTIED.get(name, ()))
            done.append(statement is not None)

        self._ask(change)
        return done[0]

    def restart_database(self) -> None:
        def restart() -> None:
            self._session.close()
            self.database.restart()
            self._session = self.database.session()

        self._ask(restart)

    def _ask(self, job: Callable[[], None]) -> None:
        """Have it done between two transactions, and wait for that."""
        done = threading.Event()
        self._asked.put((job, done))
        while not done.wait(1):
            self.expect_health()

    def _write(self) -> None:
        """One transaction."""
        before = set(self._ids)
        statements = [
            statement for _ in range(self._dice.randint(1, 3)) for statement in self._some_changes()
        ]
        is_undone = self._dice.random() < SHARE_UNDONE
        self._session.run("BEGIN", *statements, "ROLLBACK" if is_undone else "COMMIT")
        self.transactions += 1
        self.changes += 0 if is_undone else len(statements)
        if is_undone:
            self._ids = before

    def _some_changes(self) -> Iterator[str]:
        kinds = {
            self._insert: 4,
            self._update: 5,
            self._delete: 2,
            self._change_key: 1,
            self._swap_keys: 1,
        }
        yield from self._dice.choices(list(kinds), list(kinds.values()))[0]()

    def _insert(self) -> Iterator[str]:
        """Most of new ids, and some of ids that had a row."""
        for _ in range(self._dice.randint(1, 3)):
            id_ = self._free_id()
            values = {
                "id": str(id_),
                "customer": f"'käufer {id_ % 50}'",
                "amount": self._amount(),
                **self._others(),
            }
            if self._dice.random() < 0.5:
                values |= {name: str(self._dice.randint(-9, 9)) for name in self.columns.added}
            self._ids.add(id_)
            yield f"INSERT INTO orders ({', '.join(values)}) VALUES ({', '.join(values.values())})"

    def _update(self) -> Iterator[str]:
        for id_ in self._some(3):
            values = {"amount": f"amount + {self._dice.randint(0, 2)}", "changed_at": self._now()}
            if self._dice.random() < 0.3:
                values |= self._others()
            values |= {
                name: str(self._dice.randint(-9, 9))
                for name in self.columns.added
                if self._dice.random() < 0.2
            }
            yield (
                f"UPDATE orders SET "
                f"{', '.join(f'{name} = {value}' for name, value in values.items())} WHERE id = "
                f"{id_}"
            )

    def _delete(self) -> Iterator[str]:
        for id_ in self._some(2):
            self._ids.remove(id_)
            yield f"DELETE FROM orders WHERE id = {id_}"

    def _change_key(self) -> Iterator[str]:
        for id_ in self._some(1):
            yield self._moved(id_, self._free_id())

    def _swap_keys(self) -> Iterator[str]:
        found = self._some(2)
        if len(found) == 2:
            one, other = found
            yield from (self._moved(one, -1), self._moved(other, one), self._moved(-1, other))

    def _moved(self, old: int, new: int) -> str:
        self._ids = self._ids - {old} | {new}
        return f"UPDATE orders SET id = {new}, changed_at = {self._now()} WHERE id = {old}"

    def _some(self, most: int) -> list[int]:
        return self._dice.sample(
            sorted(self._ids), min(len(self._ids), self._dice.randint(1, most))
        )

    def _free_id(self) -> int:
        while (
            id_ := self._dice.randrange(3_000) + (PARTED if self._dice.random() < 0.1 else 0)
        ) in self._ids:
            pass
        return id_

    def _amount(self) -> str:
        return f"{self._dice.randrange(100_000) / 100:.2f}"

    def _others(self) -> dict[str, str]:
        length = self._dice.choice([0, 8, 8, 8, LONG_TEXT])
        note = f"'{self._dice.randbytes(length // 2).hex()}'" if length else "NULL"
        return {"note": note, "changed_at": self._now()}

    def _now(self) -> str:
        return f"'{dt.datetime.now(dt.timezone.utc):%Y-%m-%d %H:%M:%S.%f}'"
