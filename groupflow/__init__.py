"""groupflow: queued jobs in order within a group, in parallel across groups, never losing one."""

from groupflow.core.app import App
from groupflow.core.outcome import Advance, Dead, Done, Retry
from groupflow.core.task import Task

__all__ = ["Advance", "App", "Dead", "Done", "Retry", "Task"]
__version__ = "0.1.0"
