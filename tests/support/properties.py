"""How property tests run: without a clock, since a busy machine proves nothing, on few examples
unless `make test-full` wants more.
"""

import os

from hypothesis import settings

settings.register_profile(
    "lakechime", deadline=None, max_examples=int(os.environ.get("LAKECHIME_TEST_EXAMPLES", "30"))
)
settings.load_profile("lakechime")
