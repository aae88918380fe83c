"""What decoders predict, and how good a prediction is; a file here is a task."""

import functools

from gaam_cache.common import plugins
from gaam_decoder.tasks.base import Task
from gaam_decoder.tasks.classification import CLASSIFICATION, Classification

__all__ = ["CLASSIFICATION", "Classification", "Task", "task_of"]


@functools.cache
def task_of(name: str) -> Task:
    """The task of that name.

    Raises:
        ConfigError: there is no such task.
    """
    if name == CLASSIFICATION.name:
        return CLASSIFICATION
    task: Task = plugins.load(__name__, name, kind="task")()
    return task
