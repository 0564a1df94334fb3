"""A chaos run as a picture: what was accepted and what ended in each second, and below it what was done to the system."""

from collections import Counter
from html import escape
from typing import Final

from tests.checkers.history import Fault, History

WIDTH, LEFT, RIGHT, TOP = 1000, 220, 20, 46
CHART_HEIGHT, ROW_HEIGHT = 180, 13
FINAL: Final = frozenset({"completed", "failed", "cancelled"})
COLOURS: Final = {
    "coordinator": "#3465a4",
    "worker": "#4e9a06",
    "PostgreSQL": "#75507b",
    "Redis": "#cc0000",
    "connections": "#c17d11",
    "network": "#c17d11",
    "disk": "#555753",
}
STYLE: Final = """
text { font: 11px system-ui, sans-serif; fill: #2e3436 }
.title { font-size: 14px; font-weight: 600 }
.axis { stroke: #babdb6; stroke-width: 1 }
.grid { stroke: #eeeeec; stroke-width: 1 }
"""


def draw(history: History, played: list[Fault], began: float, title: str) -> str:
    """An SVG document."""
    ended = _by_second([c.at - began for c in history.journal if c.new in FINAL])
    accepted = _by_second(
        [
            op.answered - began
            for op in history.ops
            if op.what == "submit" and op.answer == "ok" and op.answered
        ]
    )
    last = max([*ended, *accepted, *(int(fault.ends - began) for fault in played), 1]) + 1
    highest = max([*ended.values(), *accepted.values(), 10])
    kinds = sorted({fault.kind for fault in played})
    height = TOP + CHART_HEIGHT + 30 + ROW_HEIGHT * len(kinds) + 16
    scale = Scale(last, highest)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text class="title" x="{LEFT}" y="20">{escape(title)}</text>',
        *_legend(),
        *_axes(scale),
        f'<path d="{_area(ended, scale)}" fill="#8ae234" fill-opacity="0.55"/>',
        f'<path d="{_path(accepted, scale)}" fill="none" stroke="#204a87" stroke-width="1"/>',
    ]
    for row, kind in enumerate(kinds):
        parts += _fault_row(kind, [f for f in played if f.kind == kind], row, began, scale)
    return "\n".join([*parts, "</svg>\n"])


class Scale:
    """From seconds and jobs to places on the page."""

    def __init__(self, last: int, highest: int) -> None:
        self.last = last
        self.highest = highest

    def x(self, second: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * second / self.last, 1)

    def y(self, jobs: float) -> float:
        return round(TOP + CHART_HEIGHT * (1 - jobs / self.highest), 1)


def _by_second(moments: list[float]) -> Counter[int]:
    return Counter(int(moment) for moment in moments if moment >= 0)


def _path(counts: Counter[int], scale: Scale) -> str:
    return "M" + " L".join(f"{scale.x(s + 0.5)},{scale.y(counts[s])}" for s in range(scale.last))


def _area(counts: Counter[int], scale: Scale) -> str:
    base = scale.y(0)
    return f"{_path(counts, scale)} L{scale.x(scale.last)},{base} L{scale.x(0)},{base} Z"


def _legend() -> list[str]:
    return [
        f'<rect x="{LEFT}" y="29" width="10" height="8" fill="#8ae234" fill-opacity="0.7"/>',
        f'<text x="{LEFT + 15}" y="37">jobs that ended, per second</text>',
        f'<line x1="{LEFT + 180}" x2="{LEFT + 195}" y1="33" y2="33" stroke="#204a87"/>',
        f'<text x="{LEFT + 200}" y="37">jobs accepted, per second</text>',
        f'<text x="{LEFT + 370}" y="37">below: faults while they lasted, and how many</text>',
    ]


def _axes(scale: Scale) -> list[str]:
    parts = []
    for jobs in _ticks(scale.highest, 4):
        y = scale.y(jobs)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{jobs}</text>')
    bottom = TOP + CHART_HEIGHT
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    parts += [
        f'<text x="{scale.x(second)}" y="{bottom + 15}" text-anchor="middle">{second} s</text>'
        for second in _ticks(scale.last, 8)
    ]
    return parts


def _ticks(highest: int, about: int) -> list[int]:
    step = max(1, highest // about)
    magnitude = 10 ** (len(str(step)) - 1)
    step = max(1, step // magnitude * magnitude)
    return list(range(0, highest + 1, step))


def _fault_row(kind: str, faults: list[Fault], row: int, began: float, scale: Scale) -> list[str]:
    y = TOP + CHART_HEIGHT + 28 + row * ROW_HEIGHT
    colour = next((c for word, c in COLOURS.items() if kind.startswith(word)), "#2e3436")
    parts = [f'<text x="{LEFT - 8}" y="{y + 8}" text-anchor="end">{escape(kind)} ({len(faults)})</text>']
    for fault in faults:
        x = scale.x(fault.begins - began)
        width = max(2.0, round(scale.x(fault.ends - began) - x, 1))
        parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="9" fill="{colour}"/>')
    return parts
