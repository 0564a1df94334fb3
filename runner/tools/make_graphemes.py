"""Makes the tables by which both runners find grapheme clusters, from one source, so that they cannot disagree.

    pip install unicodedataplus && python runner/tools/make_graphemes.py

It is run by hand when Unicode has a new version; what it writes is kept in the tree. `unicodedata` of the standard
library will not do: it has no grapheme properties, and its version of Unicode changes with Python's.
"""

from pathlib import Path

import unicodedataplus as ucd

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "runner/src/grapheme_table.h"
MODULE = ROOT / "src/stoker/executors/builtins/grapheme_table.py"

# One letter per class. UAX #29 wants two properties of a character; no character needs more than one of these.
LETTERS = {
    "CR": "r",
    "LF": "n",
    "Control": "c",
    "ZWJ": "z",
    "Regional_Indicator": "i",
    "Prepend": "p",
    "SpacingMark": "m",
    "L": "L",
    "V": "V",
    "T": "T",
    "LV": "v",
    "LVT": "t",
}
OTHER, EXTEND, LINKER, EXTEND_APART, PICTURE, CONSONANT = "oexyPC"
SURROGATES = range(0xD800, 0xE000)  # in no valid text
HANGUL = range(0xAC00, 0xD7A4)  # told by arithmetic: as ranges they would be half of the table


def letter(code: int) -> str:
    """The class of a character."""
    character = chr(code)
    cluster, conjunct = ucd.grapheme_cluster_break(character), ucd.indic_conjunct_break(character)
    match cluster, conjunct, ucd.is_extended_pictographic(character):
        case "Extend", "Extend" | "Linker" | "None", False:
            return {"Extend": EXTEND, "Linker": LINKER, "None": EXTEND_APART}[conjunct]
        case "Other", "None", picture:
            return PICTURE if picture else OTHER
        case "Other", "Consonant", False:
            return CONSONANT
        case ("ZWJ", "Extend", False) | (_, "None", False):
            return LETTERS[cluster]
    raise SystemExit(
        f"U+{code:04X} is {cluster} and {conjunct}: it needs a class of its own, and the rules a change"
    )


def ranges() -> list[tuple[int, str]]:
    """Where each run of one class begins."""
    found: list[tuple[int, str]] = []
    for code in range(0x110000):
        apart = code in SURROGATES or code in HANGUL
        current = OTHER if apart else letter(code)
        if not found or found[-1][1] != current:
            found.append((code, current))
    return found


def wrapped(words: list[str], indent: str, per_line: int) -> str:
    lines = [" ".join(words[i : i + per_line]) for i in range(0, len(words), per_line)]
    return "\n".join(indent + line for line in lines)


def header(found: list[tuple[int, str]]) -> str:
    rows = wrapped([f"{{0x{code:05X}, '{kind}'}}," for code, kind in found], "    ", 6)
    return f"""\
// Made by runner/tools/make_graphemes.py from Unicode {ucd.unidata_version}; not to be edited.
#pragma once

#include <array>
#include <cstdint>

namespace stoker {{

struct GraphemeRange {{
  std::uint32_t first;
  char kind;
}};

/// Where each run of characters of one class begins; the letters are explained in the script.
constexpr std::array<GraphemeRange, {len(found)}> grapheme_ranges = {{{{
{rows}
}}}};

}}  // namespace stoker
"""


def module(found: list[tuple[int, str]]) -> str:
    rows = wrapped([f"{code:X}:{kind}" for code, kind in found], "", 12)
    return f'''\
"""Made by runner/tools/make_graphemes.py from Unicode {ucd.unidata_version}; not to be edited."""

from typing import Final

# Where each run of characters of one class begins (hexadecimal) and the class; the letters are explained in the script.
RANGES: Final = """
{rows}
"""
'''


def main() -> None:
    found = ranges()
    HEADER.write_text(header(found))
    MODULE.write_text(module(found))


if __name__ == "__main__":
    main()
