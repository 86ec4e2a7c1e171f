"""`make test-cdc-long MINUTES=30` and `make test-streams` alone run these tests: `make test` does not have the time."""

import os

MINUTES = float(os.environ.get("LAKECHIME_TEST_MINUTES", "0"))
IS_STREAM = "LAKECHIME_TEST_STREAM" in os.environ
collect_ignore = [*([] if MINUTES else ["test_cdc.py"]), *([] if IS_STREAM else ["test_event_streams.py"])]
