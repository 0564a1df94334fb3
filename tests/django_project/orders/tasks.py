"""Tasks of every kind that Django knows."""

from typing import Any

from stoker.contrib.django.tasks_api import TaskContext, task
from tests.django_project.orders.models import Note


class Refused(Exception):
    """The bank said no."""


@task
def add(x: int, y: int) -> int:
    return x + y


@task(queue_name="mail", priority=10)
def greet(name: str) -> str:
    return f"hello {name}"


@task
async def greet_async(name: str) -> str:
    return f"hello {name}, later"


@task
async def write_async(text: str) -> int:
    await Note.objects.acreate(text=text)
    return await Note.objects.filter(text=text).acount()


@task
def write(text: str) -> int:
    Note.objects.create(text=text)
    return Note.objects.filter(text=text).count()


@task
def refuse(order: int) -> None:
    raise Refused(f"order {order}")


@task(takes_context=True)
def tell(context: TaskContext, word: str) -> dict[str, Any]:
    return {"attempt": context.attempt, "id": context.task_result.id, "word": word}


@task(takes_context=True)
def third_time(context: TaskContext) -> str:
    if context.attempt < 3:
        raise Refused(f"attempt {context.attempt}")
    return "at last"


@task(takes_context=True)
async def second_time(context: TaskContext) -> str:
    if context.attempt < 2:
        raise Refused("once")
    return "async at last"


@task
def odd_result() -> object:
    return object()


def no_task(text: str) -> None:
    Note.objects.create(text=text)
