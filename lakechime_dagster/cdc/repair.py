"""Messages that put rows right which a table lost: what the database says of them at a cut, in the words of its own messages."""

REPAIRS = "lakechime-repair/"  # with which the topic ids of such messages begin
