"""What a task returned, as the JSON that is stored: encoded, and checked against what the task says that it returns.

The check reads the encoded result with the decoder that the SDK's `job.result()` will use, so a result that is stored can
be read. It is skipped where the type alone tells.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from stoker.domain import json_text
from stoker.domain.json_values import from_json, to_json

_NO_LOOK_NEEDED: Final = (int, str, bool, float, type(None))

Encode = Callable[[Any], bytes]


class UnencodableResult(TypeError):
    error_type = "result_not_json"
    retryable = False


class UnfitResult(TypeError):
    error_type = "result_type"
    retryable = False


class ResultTooLarge(ValueError):
    error_type = "result_too_large"
    retryable = False


def result_encoder(returns: Any) -> Encode:
    """Return what encodes the results of a task that is annotated to return this type."""
    decode = msgspec.json.Decoder(returns, dec_hook=from_json).decode
    plain = returns if returns in _NO_LOOK_NEEDED else None

    def encode(value: Any) -> bytes:
        try:
            text = json_text.encode(value, to_json)
        except (TypeError, ValueError, OverflowError, RecursionError, UnicodeError) as error:
            raise UnencodableResult(
                f"the result of type {type(value).__name__} is not JSON: {error}"
            ) from error
        if returns is not Any and type(value) is not plain:
            try:
                decode(text)
            except (msgspec.DecodeError, RecursionError) as error:
                raise UnfitResult(_unfit(returns, value, error)) from None
        return text

    return encode


def _unfit(returns: Any, value: Any, error: Exception) -> str:
    wanted = returns.__name__ if type(returns) is type else str(returns)
    what, _, where = str(error).partition(" - at `$")
    place = f" at {where.strip('`.')}" if where.strip("`.") else ""
    return (
        f"the task is annotated to return {wanted}, but its result, of type {type(value).__name__}, does not fit: "
        f"{what}{place}; correct the task or its annotation"
    )


def check_size(result: bytes, limit: int) -> bytes:
    if len(result) > limit:
        raise too_large(result, limit)
    return result


def too_large(result: bytes, limit: int) -> ResultTooLarge:
    return ResultTooLarge(
        f"the result has {len(result)} bytes, and {limit} are allowed; store it elsewhere and return a reference"
    )
