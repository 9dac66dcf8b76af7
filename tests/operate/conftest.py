"""The store's own fixtures: operators look at what the path has left."""

from __future__ import annotations

from tests.store.conftest import bench

__all__ = ["bench"]
