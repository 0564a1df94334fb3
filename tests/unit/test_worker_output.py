"""What a worker keeps of its jobs' output until it is sent."""

from stoker.wire.frames import Output, OutputChunk, Progress, ProgressNote
from stoker.worker.output import ATTEMPT_BYTES, FRAME_BYTES, WAITING_BYTES, OutputBuffer


def chunks(buffer: OutputBuffer) -> list[OutputChunk]:
    return [chunk for frame in buffer.take() if isinstance(frame, Output) for chunk in frame.chunks]


def test_output_comes_out_in_order_with_its_offsets() -> None:
    buffer = OutputBuffer()
    buffer.add("a", 1, "stdout", b"one")
    buffer.add("b", 7, "stderr", b"other")
    buffer.add("a", 1, "stderr", b"two")
    assert chunks(buffer) == [
        OutputChunk("a", 1, "stdout", 0, b"one"),
        OutputChunk("b", 7, "stderr", 0, b"other"),
        OutputChunk("a", 1, "stderr", 3, b"two"),
    ]
    assert buffer.take() == []


def test_offsets_go_on_after_a_send_and_begin_anew_with_a_new_claim() -> None:
    buffer = OutputBuffer()
    buffer.add("a", 1, "stdout", b"one")
    buffer.take()
    buffer.add("a", 1, "stdout", b"two")
    buffer.add("a", 2, "stdout", b"again")
    assert [(c.claim_id, c.offset) for c in chunks(buffer)] == [(1, 3), (2, 0)]


def test_one_attempt_is_bounded() -> None:
    buffer = OutputBuffer()
    for _ in range(3_000):
        buffer.add("a", 1, "stdout", b"x" * 1_000)
    assert sum(len(chunk.data) for chunk in chunks(buffer)) == ATTEMPT_BYTES


def test_all_that_waits_is_bounded_while_nobody_listens() -> None:
    buffer = OutputBuffer()
    for job in range(100):
        buffer.add(f"job-{job}", 1, "stdout", b"x" * 1_000_000)
    assert sum(len(chunk.data) for chunk in chunks(buffer)) <= WAITING_BYTES + 1_000_000


def test_frames_have_a_sensible_size() -> None:
    buffer = OutputBuffer()
    for _ in range(100):
        buffer.add("a", 1, "stdout", b"x" * 10_000)
    frames = [frame for frame in buffer.take() if isinstance(frame, Output)]
    assert len(frames) > 1
    assert all(sum(len(c.data) for c in frame.chunks) < FRAME_BYTES + 10_000 for frame in frames)


def test_only_the_latest_progress_is_sent() -> None:
    buffer = OutputBuffer()
    for done in range(1_000):
        buffer.progress("a", 1, done, 1_000.0, None)
    assert buffer.take() == [Progress([ProgressNote("a", 1, 999, 1_000.0, None)])]
