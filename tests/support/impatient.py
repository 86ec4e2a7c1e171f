"""What the code locations of tests that kill share: leases of seconds, not of a minute, and where
the broker is.
"""

import os

from lakechime_dagster.runtime import execution
from lakechime_dagster.triggers import ledger
from tests.support.processes import PATIENCE

KAFKA = "LAKECHIME_TEST_KAFKA"  # the variable that holds the address of the broker


def short_leases() -> None:
    """Leases of this process are short from now on."""
    ledger.LEASE_MS = int(12_000 * PATIENCE)
    execution.RENEW_SECONDS = 2.0


def broker() -> str:
    """The address of the broker; leases of this process are short from now on."""
    short_leases()
    return os.environ[KAFKA]
