"""A Flask application that hands work to jobs: `flask --app web run`.

The handle of a job is its id, so any process can answer for it later.
"""

from typing import Any

from flask import Flask, abort, request, url_for
from tasks import count_words

from stoker.client.errors import InvalidInput, NotFound

web = Flask(__name__)


@web.post("/texts")
def submit() -> tuple[dict[str, Any], int]:
    """Take a text and say where its words will be."""
    job = count_words.submit(request.get_data(as_text=True))
    return {"id": job.id, "url": url_for("words", job_id=job.id)}, 202


@web.get("/texts/<job_id>")
def words(job_id: str) -> tuple[dict[str, Any], int]:
    """The words of a text: 200 when they are counted, 202 before."""
    try:
        info = count_words.job(job_id).refresh()
    except (NotFound, InvalidInput):
        abort(404)
    if info.type != count_words.name:
        abort(404)
    if info.status == "completed":
        return {"status": info.status, "words": info.result}, 200
    return {"status": info.status}, 500 if info.status == "failed" else 202
