"""The tasks of the Flask example: `stoker worker --app tasks:app`."""

from stoker import Stoker

app = Stoker()


@app.task(max_attempts=3, timeout_sec=60)
def count_words(text: str) -> dict[str, int]:
    """How often each word is in the text."""
    words = text.lower().split()
    return {word: words.count(word) for word in sorted(set(words))}
