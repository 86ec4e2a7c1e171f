"""`make test-cdc-long` and `make test-soak` have the time that `make test` has not; `make test-streams` is its last part, alone."""

import os

MINUTES = float(os.environ.get("LAKECHIME_TEST_MINUTES", "0"))
IS_STREAM = "LAKECHIME_TEST_STREAM" in os.environ
collect_ignore = [*([] if MINUTES else ["test_cdc.py", "test_event_soak.py"]), *([] if IS_STREAM else ["test_event_streams.py"])]
