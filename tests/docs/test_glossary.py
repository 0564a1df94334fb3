"""`docs/glossary.md` explains words that are in use, in order, and every word that ARCHITECTURE.md presents as a term."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
ENTRY = re.compile(r"^- \*\*(?P<term>[^*]+)\*\*: (?P<text>.+)$", re.MULTILINE)
IDEA = re.compile(r"^\*\*The (\w+)\.\*\*", re.MULTILINE)
WORDS = re.compile(r"^## Words\n(?P<text>.*?)(?=^## )", re.MULTILINE | re.DOTALL)

TERMS = {entry["term"]: entry["text"] for entry in ENTRY.finditer(GLOSSARY.read_text(encoding="utf-8"))}


@cache
def everything() -> str:
    """Return the source and the docs, without the glossary, with all separators of words as spaces."""
    files = [file for kind in ("*.py", "*.sql") for file in sorted((ROOT / "src").rglob(kind))]
    files += [page for page in sorted((ROOT / "docs").rglob("*.md")) if page != GLOSSARY]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return plain(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text))


def plain(text: str) -> str:
    return re.sub(r"[\s_-]+", " ", text).lower()


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_in_use(term: str) -> None:
    assert re.search(rf"\b{re.escape(plain(term))}", everything()), f"nothing uses the word {term!r} any more"


def test_terms_are_in_order_and_stand_once() -> None:
    terms = [entry["term"] for entry in ENTRY.finditer(GLOSSARY.read_text(encoding="utf-8"))]
    assert terms == sorted(set(terms))


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_explained_in_one_or_two_sentences(term: str) -> None:
    text = TERMS[term]
    assert text.endswith(".")
    assert len(re.findall(r"\.(?= |$)", text)) <= 2, "explain it in one or two sentences"


def test_every_term_of_the_architecture_is_explained() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = WORDS.search(text)
    assert section is not None
    terms = {*IDEA.findall(text), *re.findall(r"\*([^*]+)\*", section["text"])}
    assert len(terms) > 10
    assert sorted(terms - TERMS.keys()) == []
