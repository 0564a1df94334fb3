"""`reverse_string`."""

import msgspec

from stoker.executors.builtins.payload import Fields


def reverse_string(payload: bytes) -> bytes:
    """`{"text"}` → `{"reversed"}`, by grapheme cluster."""
    from stoker.executors.builtins.graphemes import reverse  # its table is read when the first job needs it

    fields = Fields(payload, "text")
    fields.require("text")
    return msgspec.json.encode({"reversed": reverse(fields.text("text") or "")})
