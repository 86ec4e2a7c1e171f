import pytest

from tests.support.missing import missing


def test_a_missing_service_is_a_skip_on_a_laptop_that_names_the_command(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no PostgreSQL; run `make ready`"):
        missing("no PostgreSQL", "run `make ready`")


def test_a_missing_service_is_a_failure_in_ci(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no PostgreSQL"):
        missing("no PostgreSQL", "run `make ready`")
