"""How smoothly a page runs, measured inside it: time between frames, and tasks that held everything up."""

import time
from dataclasses import dataclass
from typing import Final

from playwright.sync_api import CDPSession, Page

_BEGIN: Final = """() => {
  const measure = { frames: [], tasks: [], on: true };
  let last = performance.now();
  const tick = now => {
    measure.frames.push(now - last);
    last = now;
    if (measure.on) requestAnimationFrame(tick);
  };
  requestAnimationFrame(now => { last = now; requestAnimationFrame(tick); });
  measure.observer = new PerformanceObserver(list => {
    for (const task of list.getEntries()) measure.tasks.push(task.duration);
  });
  measure.observer.observe({ type: "longtask" });
  window.measure = measure;
}"""
_END: Final = """() => {
  const { frames, tasks, observer } = window.measure;
  window.measure.on = false;
  observer.disconnect();
  return [frames, tasks];
}"""
_JUMP: Final = """share => {
  const grid = document.querySelector("[role=grid]");
  grid.scrollTop = share * (grid.scrollHeight - grid.clientHeight);
}"""
_ARRIVED: Final = """([low, high]) => {
  const rows = [...document.querySelectorAll("[role=row][aria-rowindex]")].slice(1);
  const grid = document.querySelector("[role=grid]").getBoundingClientRect();
  const seen = rows.filter(row => {
    const box = row.getBoundingClientRect();
    return box.bottom > grid.top + 40 && box.top < grid.bottom;
  });
  const place = row => Number(row.getAttribute("aria-rowindex"));
  return seen.length > 5
    && seen.every(row => row.querySelector("input[type=checkbox]"))
    && seen.some(row => place(row) >= low && place(row) <= high);
}"""


@dataclass(frozen=True)
class Smoothness:
    frames: int
    longest_frame_ms: float
    longest_task_ms: float

    def __str__(self) -> str:
        return (
            f"{self.frames} frames, longest {self.longest_frame_ms:.0f} ms; "
            f"longest task {self.longest_task_ms:.0f} ms"
        )


def begin(page: Page) -> None:
    page.evaluate(_BEGIN)


def end(page: Page) -> Smoothness:
    frames, tasks = page.evaluate(_END)
    return Smoothness(len(frames), max(frames, default=0.0), max(tasks, default=0.0))


def jump(page: Page, share: float, count: int) -> float:
    """Scroll to a place in a list of so many jobs; seconds until the jobs there are shown."""
    began = time.monotonic()
    page.evaluate(_JUMP, share)
    wanted = share * count
    # Scrolled as a hand would: within a few screens of the place.
    page.wait_for_function(_ARRIVED, arg=[wanted - 200 - count * 0.002, wanted + 200 + count * 0.002])
    return time.monotonic() - began


def heap_bytes(session: CDPSession) -> int:
    """What the page holds on to, without what it has let go."""
    session.send("HeapProfiler.collectGarbage")
    session.send("HeapProfiler.collectGarbage")
    used: int = session.send("Runtime.getHeapUsage")["usedSize"]
    return used
