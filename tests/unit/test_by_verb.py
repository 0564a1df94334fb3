"""What every store works out in the same way."""

from stoker.store.group_commit import by_verb


def test_verbs_come_in_their_order_with_the_places_of_their_calls() -> None:
    calls = [("claim", 1), ("finish", 2), ("claim", 3)]
    assert by_verb(calls, ["finish", "insert", "claim"]) == [("finish", [1]), ("claim", [0, 2])]
