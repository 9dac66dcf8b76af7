"""`run` in a rule: what goes with it, and what doesn't."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from groupflow.settings.rules import GroupRule


@pytest.mark.parametrize("limit", [{"concurrency": 2}, {"rate": "10/s"}])
def test_a_run_and_a_limit_contradict(limit: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="Leave out run"):
        GroupRule.model_validate({"key": "{k}", "run": 2, **limit})
    GroupRule.model_validate({"key": "{k}", "run": 1, **limit})


@pytest.mark.parametrize("run", [0, -1, 501, 1.5, "many"])
def test_a_run_is_a_number_of_tasks(run: object) -> None:
    with pytest.raises(ValidationError):
        GroupRule.model_validate({"key": "{k}", "run": run})


@pytest.mark.parametrize("other", [{"concurrency": 2}, {"rate": "1/s"}, {"run": 2}])
def test_a_batch_has_no_limits_beside_it(other: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="Leave out"):
        GroupRule.model_validate({"key": "{k}", "batch": 2, **other})
    assert GroupRule.model_validate({"key": "{k}", "batch": 2}).policy().batch == 2


def test_nobody_waits_for_a_batch_of_one() -> None:
    with pytest.raises(ValidationError, match="give the batch that is waited for"):
        GroupRule.model_validate({"key": "{k}", "batch_wait": 2.0})
    limit = GroupRule.model_validate({"key": "{k}", "batch": 9, "batch_wait": 2.0}).limit()
    assert (limit.batch, limit.batch_wait, limit.is_serial, limit.is_none) == (9, 2.0, True, False)
    assert GroupRule.model_validate({"key": "{k}", "batch": 9}).limit().is_none
