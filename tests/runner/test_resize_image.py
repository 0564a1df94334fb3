"""`resize_image`, which only Python has."""

import base64
import io
import json
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from PIL import Image

from stoker.executors.builtin import BUILTINS, PayloadRefused
from stoker.executors.builtins.image import FILES_DIR, MAX_SIDE


def encoded(image: Image.Image, format: str = "PNG", **options: Any) -> str:
    out = io.BytesIO()
    image.save(out, format, **options)
    return base64.b64encode(out.getvalue()).decode()


def resize(**payload: Any) -> tuple[dict[str, Any], Image.Image]:
    result = json.loads(BUILTINS["resize_image"](json.dumps(payload).encode()))
    return result, Image.open(io.BytesIO(base64.b64decode(result["image"])))


def two_halves(mode: str = "RGB") -> Image.Image:
    """Red on the left, blue on the right."""
    image = Image.new("RGB", (40, 20), (255, 0, 0))
    image.paste((0, 0, 255), (20, 0, 40, 20))
    return image.convert(mode)


@pytest.mark.parametrize("format", ["PNG", "JPEG"])
def test_it_really_resizes(format: str) -> None:
    result, image = resize(image=encoded(two_halves(), format), width=10, height=6)
    assert (result["width"], result["height"], result["format"]) == (10, 6, format.lower())
    assert (image.size, image.format) == ((10, 6), format)
    left, right = image.getpixel((1, 3)), image.getpixel((8, 3))
    assert isinstance(left, tuple)
    assert isinstance(right, tuple)
    assert left[0] > 200 > 60 > left[2]
    assert right[2] > 200 > 60 > right[0]


@pytest.mark.parametrize(
    "head", ["data:image/png;base64,", "DATA:;base64,", "data:image/png;charset=utf-8;BASE64,"]
)
def test_an_image_may_come_in_a_data_url(head: str) -> None:
    _, image = resize(url=head + encoded(two_halves()), width=10, height=6)
    assert (image.size, image.format) == ((10, 6), "PNG")


def test_the_data_of_a_url_may_be_quoted() -> None:
    file = base64.b64decode(encoded(two_halves()))
    for url in (f"data:image/png,{quote(file)}", f"data:;base64,{quote(encoded(two_halves()), safe='')}"):
        assert resize(url=url, width=4, height=2)[1].size == (4, 2)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16", "CMYK"])
@pytest.mark.parametrize("format", ["png", "jpeg"])
def test_every_mode_can_become_every_format(mode: str, format: str) -> None:
    source = Image.new("I;16", (8, 8), 300) if mode == "I;16" else two_halves(mode)
    image = encoded(source, "JPEG" if mode == "CMYK" else "PNG")
    result, resized = resize(image=image, width=3, height=5, format=format.upper())
    assert (result["format"], resized.size) == (format, (3, 5))


def test_what_shows_through_is_white_in_jpeg() -> None:
    image = encoded(Image.new("RGBA", (8, 8), (0, 0, 0, 0)))
    _, resized = resize(image=image, width=4, height=4, format="jpeg")
    assert resized.getpixel((1, 1)) == (255, 255, 255)


def test_a_photo_taken_sideways_is_put_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: turn by 90 degrees
    _, resized = resize(image=encoded(two_halves(), "JPEG", exif=exif), width=20, height=40)
    top = resized.getpixel((10, 5))
    assert isinstance(top, tuple)
    assert top[0] > 200 > top[2]


def png_bomb(width: int, height: int) -> str:
    """A few bytes that say they are a very large image."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + name + data + zlib.crc32(name + data).to_bytes(4, "big")

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\x02\0\0\0"
    data = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + data).decode()


SMALL = encoded(two_halves())


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({}, "width is required"),
        ({"width": 1, "height": 1}, "one of image"),
        ({"image": SMALL, "file": "a.png", "width": 1, "height": 1}, "one of image"),
        ({"image": SMALL, "url": f"data:,{SMALL}", "width": 1, "height": 1}, "one of image"),
        ({"image": SMALL, "width": 0, "height": 1}, "width must be between"),
        ({"image": SMALL, "width": MAX_SIDE, "height": MAX_SIDE}, "pixels"),
        ({"image": SMALL, "width": "1", "height": 1}, "width must be an integer"),
        ({"image": SMALL, "width": 1, "height": 1, "format": "gif"}, "png or jpeg"),
        ({"url": "http://127.0.0.1/a.png", "width": 1, "height": 1}, "must be a data: URL"),
        ({"url": "file:///etc/passwd", "width": 1, "height": 1}, "must be a data: URL"),
        ({"url": "", "width": 1, "height": 1}, "must be a data: URL"),
        ({"url": "data:image/png;base64", "width": 1, "height": 1}, "no comma"),
        ({"url": "data:image/png;base64,?", "width": 1, "height": 1}, "data of url is not valid base64"),
        ({"url": "data:image/png,hello", "width": 1, "height": 1}, "cannot be decoded"),
        ({"url": ["data:,"], "width": 1, "height": 1}, "url must be a string"),
        ({"image": "not base64!", "width": 1, "height": 1}, "base64"),
        ({"image": "é", "width": 1, "height": 1}, "base64"),
        ({"image": "", "width": 1, "height": 1}, "cannot be decoded"),
        ({"image": base64.b64encode(b"GIF89a").decode(), "width": 1, "height": 1}, "cannot be decoded"),
        ({"image": SMALL[:80], "width": 1, "height": 1}, "cannot be decoded"),
        ({"image": png_bomb(8_000, 8_000), "width": 1, "height": 1}, "8000 by 8000"),
        ({"image": png_bomb(12_000, 9_000), "width": 1, "height": 1}, "12000 by 9000"),
        ({"image": png_bomb(2**31 - 1, 2**31 - 1), "width": 1, "height": 1}, "cannot be decoded"),
        ({"file": "a.png", "width": 1, "height": 1}, FILES_DIR),
    ],
)
def test_what_cannot_be_resized_is_refused(payload: dict[str, Any], message: str) -> None:
    with pytest.raises(PayloadRefused, match=message):
        resize(**payload)


def test_a_file_is_read_only_from_the_folder_for_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "files"
    (folder / "deep").mkdir(parents=True)
    for place in (folder / "in.png", folder / "deep" / "in.png", tmp_path / "out.png"):
        two_halves().save(place)
    (folder / "link.png").symlink_to(tmp_path / "out.png")
    monkeypatch.setenv(FILES_DIR, str(folder))
    for inside in ("in.png", "deep/in.png", "deep/../in.png", str(folder / "in.png")):
        assert resize(file=inside, width=2, height=2)[1].size == (2, 2)
    for outside in ("../out.png", str(tmp_path / "out.png"), "link.png", "none.png", "deep", "", "a\0b"):
        with pytest.raises(PayloadRefused, match="no such file"):
            resize(file=outside, width=2, height=2)
