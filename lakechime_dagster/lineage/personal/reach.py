"""How personal data has come to a column."""

from enum import IntEnum


class Reach(IntEnum):
    """How a tag has come to a column, the surest first.

    Attributes:
        PERSONAL: Its values are there.
        PSEUDONYM: Something of which they are known again, such as a hash.
        UNSURE: They may be there, as something on the way could not be told.
        INDIRECT: They decide on it and are not in it; such a tag goes no further.
    """

    PERSONAL = 0
    PSEUDONYM = 1
    UNSURE = 2
    INDIRECT = 3

    @property
    def word(self) -> str:
        """As people read it."""
        return ("personal", "pseudonym", "not known", "only decides")[self]
