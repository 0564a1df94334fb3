"""The deck of faults: a card whose part of the system is busy waits for its turn and is not thrown away."""

from tests.chaos.faults import first_free

BUSY = float("inf")


def test_the_first_card_whose_part_is_free_is_taken() -> None:
    assert first_free(["centre", "w0", "w1"], {}, now=5.0) == 0
    assert first_free(["centre", "w0", "w1"], {"centre": BUSY}, now=5.0) == 1
    assert first_free(["centre", "w0", "w1"], {"centre": BUSY, "w0": 5.1}, now=5.0) == 2


def test_when_all_are_busy_nothing_is_taken() -> None:
    assert first_free(["centre", "w0"], {"centre": BUSY, "w0": 5.1}, now=5.0) is None
    assert first_free([], {}, now=5.0) is None


def test_a_part_is_free_from_the_moment_that_was_said() -> None:
    assert first_free(["centre"], {"centre": 5.0}, now=5.0) == 0


def test_cards_that_wait_for_the_same_part_are_played_in_their_order_before_later_ones() -> None:
    deck = [("kill", "centre"), ("stop", "w0"), ("cut", "centre"), ("kill", "w0"), ("fill", "centre")]
    free_at: dict[str, float] = {}
    played = []
    for now in range(0, 100):
        place = first_free((part for _, part in deck), free_at, now)
        if place is not None:
            kind, part = deck.pop(place)
            played.append((kind, part))
            free_at[part] = now + (10 if part == "centre" else 2)
    assert deck == []
    assert [kind for kind, part in played if part == "centre"] == ["kill", "cut", "fill"]
    assert [kind for kind, part in played if part == "w0"] == ["stop", "kill"]
