"""How property tests run: without a clock, since a busy machine proves nothing."""

from hypothesis import settings

settings.register_profile("no-clock", deadline=None)
settings.load_profile("no-clock")
