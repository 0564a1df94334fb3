"""The app of the README: `stoker up --app tasks:app` in this folder, then `python tasks.py`."""

from stoker import Stoker

app = Stoker()  # http://127.0.0.1:8080, or STOKER_API_URL


@app.task(timeout_sec=30, max_attempts=5)
def add(x: int, y: int) -> int:
    return x + y


@app.task(queue="mail")
async def greet(name: str) -> str:
    return f"hello {name}"


if __name__ == "__main__":
    job = add.submit(1, 2)  # arguments are checked here, not in a worker
    print(job.id, job.result(timeout=10))  # 3, computed by a worker
    print(greet.submit("you").result(timeout=10))
