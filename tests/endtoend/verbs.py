"""Verbs called in this process, by the same `main` as the command: faster than processes."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

import pytest

from groupflow.cli import main


def said(words: Sequence[str], environment: Mapping[str, str]) -> tuple[object, str, str]:
    """The exit code of a verb, and what it says on stdout and stderr."""
    out, error = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, environment, clear=True),
        redirect_stdout(out),
        redirect_stderr(error),
        pytest.raises(SystemExit) as end,
    ):
        main(list(words))
    return end.value.code, out.getvalue(), error.getvalue()
