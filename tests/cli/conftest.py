"""What tests of verbs share with those of what verbs are made of."""

from __future__ import annotations

from tests.operate.conftest import spread

__all__ = ["spread"]
