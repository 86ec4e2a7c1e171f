"""Long tests: of tier 3. LAKECHIME_TEST_MINUTES says how long each writes and kills."""

import os

MINUTES = float(os.environ.get("LAKECHIME_TEST_MINUTES", "3"))
