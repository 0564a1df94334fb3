"""Ids as people shorten them."""

import pytest

from stoker.domain.short_ids import read

ID = "019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11"


@pytest.mark.parametrize("cut", range(8, 37))
def test_any_beginning_and_any_end_of_an_id_fits_it_with_or_without_dashes(cut: int) -> None:
    for text in (
        ID[:cut],
        ID[-cut:],
        ID.upper()[-cut:],
        ID[:cut].replace("-", ""),
        ID[-cut:].replace("-", ""),
    ):
        part = read(text)
        if len(text.replace("-", "")) < 8:
            assert part is None
        else:
            assert part is not None
            assert part.fits(ID), text


@pytest.mark.parametrize(
    "text", ["", "0d3f6b8", "0d3f6b8f2a1x", "--------", f"{ID}0", "%_%_%_%_", "0d3f6b8f 2a11"]
)
def test_what_cannot_be_a_part_is_none(text: str) -> None:
    assert read(text) is None


def test_a_middle_is_no_part() -> None:
    part = read("7b0e7c61")
    assert part is not None
    assert not part.fits(ID)
