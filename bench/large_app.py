"""The task of `bench.large_payloads`: it takes much and gives little."""

from stoker import Stoker

app = Stoker()


@app.task(name="size_of")
def size_of(text: str) -> int:
    return len(text)
