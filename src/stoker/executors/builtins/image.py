"""`resize_image`: decode, resize, encode. Only in Python, with Pillow.

An image is small until it is decoded, so its header is judged before its pixels are read.
"""

import base64
import binascii
import io
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

import msgspec

from stoker.executors.builtins.payload import Fields, PayloadRefused

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS: Final = 40_000_000
MAX_SIDE: Final = 16_384
MAX_FILE_BYTES: Final = 64 * 1024 * 1024
FILES_DIR: Final = "STOKER_FILES_DIR"
_FORMATS: Final = {"png": "PNG", "jpeg": "JPEG", "jpg": "JPEG"}


def resize_image(payload: bytes) -> bytes:
    """`{"image" | "url" | "file", "width", "height", "format"}` → `{"image", "width", "height", "format"}`"""
    fields = Fields(payload, "image", "url", "file", "width", "height", "format")
    for name in ("width", "height"):
        fields.require(name)
    width = fields.integer_or("width", 0, 1, MAX_SIDE)
    height = fields.integer_or("height", 0, 1, MAX_SIDE)
    if width * height > MAX_PIXELS:
        raise PayloadRefused(f"width times height must be at most {MAX_PIXELS} pixels")
    wanted = _format(fields)
    image, source_format = _open(_source(fields))
    encoded = _encode(_resized(image, width, height), wanted or source_format)
    return msgspec.json.encode(
        {
            "image": base64.b64encode(encoded).decode(),
            "width": width,
            "height": height,
            "format": (wanted or source_format).lower(),
        }
    )


def _format(fields: Fields) -> str | None:
    name = fields.text("format")
    if name is None:
        return None
    if name.lower() not in _FORMATS:
        raise PayloadRefused("format must be png or jpeg")
    return _FORMATS[name.lower()]


def _source(fields: Fields) -> bytes:
    """Return the bytes of the image, given inline, as a `data:` URL or as the name of a file."""
    inline, url, name = fields.text("image"), fields.text("url"), fields.text("file")
    if [inline, url, name].count(None) != 2:
        raise PayloadRefused("give one of image (base64), url (data:) and file")
    if inline is not None:
        return _decode_base64(inline, "image")
    if url is not None:
        return _decode_data_url(url)
    return _read_file(name or "")


def _decode_base64(text: str | bytes, field: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise PayloadRefused(f"{field} is not valid base64") from None


def _decode_data_url(url: str) -> bytes:
    """`data:[TYPE][;base64],DATA`. Other addresses are never fetched: a worker must not call where a submitter points."""
    if url[:5].lower() != "data:":
        raise PayloadRefused(
            "url must be a data: URL, such as data:image/png;base64,…; nothing is fetched from other addresses, "
            "send the image itself"
        )
    head, comma, data = url[5:].partition(",")
    if not comma:
        raise PayloadRefused("url is not a data: URL: it has no comma before its data")
    plain = unquote_to_bytes(data)
    return _decode_base64(plain, "the data of url") if head.lower().endswith(";base64") else plain


def _read_file(name: str) -> bytes:
    """A file inside the folder that the operator named; links and dots that lead out of it do not help."""
    folder = os.environ.get(FILES_DIR)
    if not folder:
        raise PayloadRefused(
            f"file needs {FILES_DIR} to be set where the worker runs; or send the image as base64"
        )
    try:
        root = Path(folder).resolve(strict=True)
        path = (root / name).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        raise PayloadRefused(f"there is no such file in {FILES_DIR}") from None
    if not path.is_relative_to(root) or not path.is_file():
        raise PayloadRefused(f"there is no such file in {FILES_DIR}")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise PayloadRefused(f"the file has more than {MAX_FILE_BYTES} bytes")
    return path.read_bytes()


def _open(data: bytes) -> tuple["Image.Image", str]:
    """Return the image, decoded and the right way up, and its format."""
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            # Our own limit is lower than the one at which Pillow begins to warn.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data), formats=("PNG", "JPEG"))
            _judge_size(image)
            image.load()
        return ImageOps.exif_transpose(image), image.format or "PNG"
    except (PayloadRefused, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - decoders raise whatever a broken file leads them to
        raise PayloadRefused(f"the image cannot be decoded as PNG or JPEG: {error}") from None


def _judge_size(image: "Image.Image") -> None:
    if image.width * image.height > MAX_PIXELS:
        raise PayloadRefused(
            f"the image has {image.width} by {image.height} pixels, and {MAX_PIXELS} are allowed"
        )


def _resized(image: "Image.Image", width: int, height: int) -> "Image.Image":
    from PIL import Image

    if image.mode not in {"L", "LA", "RGB", "RGBA"}:  # palettes and bitmaps have no colours in between
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    return image.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3.0)


def _encode(image: "Image.Image", format: str) -> bytes:
    out = io.BytesIO()
    if format == "JPEG":
        _without_alpha(image).save(out, "JPEG", quality=90)
    else:
        image.save(out, "PNG")
    return out.getvalue()


def _without_alpha(image: "Image.Image") -> "Image.Image":
    """JPEG knows no transparency: what shows through is white."""
    from PIL import Image

    if image.mode not in {"LA", "RGBA"}:
        return image
    image = image.convert("RGBA")
    background = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(background, image).convert("RGB")
