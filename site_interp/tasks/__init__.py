"""Tasks: (input, answers) pairs in three splits, from the bundled suite, a data folder or a user's own file."""

from site_interp.tasks.labelled import Labelled, held_out
from site_interp.tasks.load import SUITES, TaskInfo, list_tasks, load_suite, load_task, suite_task_names
from site_interp.tasks.task import Example, Row, Task, check_several, short_names, sub_seed

__all__ = [
    "SUITES",
    "Example",
    "Labelled",
    "Row",
    "Task",
    "TaskInfo",
    "check_several",
    "held_out",
    "list_tasks",
    "load_suite",
    "load_task",
    "short_names",
    "sub_seed",
    "suite_task_names",
]
