"""`make test-cdc-long MINUTES=30` alone runs these tests: `make test` does not have the time."""

import os

MINUTES = float(os.environ.get("LAKECHIME_TEST_MINUTES", "0"))
collect_ignore = [] if MINUTES else ["test_cdc.py"]
