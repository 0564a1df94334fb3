"""Programs that both type checkers must refuse: each line that is marked is an error in both, and none that is not."""

from stoker import JobHandle, Stoker

app = Stoker()


@app.task
def add(x: int, y: int = 1) -> int:
    return x + y


@app.task(queue="mail")
async def greet(name: str, *, loud: bool = False) -> str:
    return name


def submitting() -> None:
    add.submit("one")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    add.submit()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    add.submit(1, 2, 3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    add.submit(1, z=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    greet.submit("you", True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    greet.submit("you", loud="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def results() -> None:
    text: str = add.submit(1).result()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    number: int = greet.submit("you").result()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    job: JobHandle[str] = add.submit(1)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    str((text, number, job))


async def awaited() -> None:
    text: str = await add.submit(1)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    str(text)


def options() -> None:
    add.options(prioritty=0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    add.options(priority="high")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    app.task(max_attempts="three")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    Stoker(lifspan=None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    app.jobs(status="faild")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    app.dead_letters.replay(fingerprnt="f")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
