"""Untrusted uploads, streamed from the socket to the disk: limits hold while they arrive, not after."""

from __future__ import annotations

import asyncio
import hashlib
import re
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote_to_bytes

from PIL import Image
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from nfad.service.errors import ApiError
from nfad.service.pictures import PictureStore
from nfad.service.record import NAME_LENGTH, as_text
from nfad.vision.pixels import FORMATS, MAX_PIXELS, MIN_SIDE

FIELD = "image"
OVERHEAD = 64 * 1024  # boundaries and headers around the files
BUFFER = 1 << 20  # bytes gathered in memory before a thread writes them
PARAMETER = re.compile(r';\s*([^\s=;"]+)\s*=\s*("(?:\\.|[^"\\])*"|[^;]*)')  # of a header
LATIN = "iso-8859-1"  # the only character set but UTF-8 that RFC 5987 names


@dataclass(frozen=True)
class Upload:
    """A file on our disk."""

    path: Path
    image: str  # the client's name for it: text to show, never a path
    size: int
    sha256: str
    suffix: str = ""

    def without_path(self, error: Exception) -> str:
        """An error's message that does not tell the client where the file is on our disk."""
        return str(error).replace(str(self.path), "the upload")


@asynccontextmanager
async def received(
    request: Request, pictures: PictureStore, *, limit: int, files: int, total: int, seconds: float
) -> AsyncIterator[list[Upload]]:
    """The files in the field `image` of a multipart request; what is not moved elsewhere is removed after the block."""
    kind, parameters = parse_options_header(request.headers.get("content-type", ""))
    boundary = parameters.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not 0 < len(boundary) <= 200:
        raise ApiError(400, f"send the image as multipart/form-data, in a field named {FIELD}")
    form = _Form(boundary, pictures, limit, files)
    try:
        await _read(request, form, total, seconds)
        yield form.uploads
    finally:
        form.close()


async def _read(request: Request, form: _Form, total: int, seconds: float) -> None:
    count, gathered = 0, bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                count += len(chunk)
                if count > total + OVERHEAD:
                    raise ApiError(413, f"the upload is larger than the {total / 1e6:g} MB that are taken at once")
                gathered += chunk
                if len(gathered) >= BUFFER:
                    await run_in_threadpool(form.write, bytes(gathered))
                    gathered.clear()
            await run_in_threadpool(form.finish, bytes(gathered))
    except TimeoutError:
        raise ApiError(408, f"the upload did not arrive within {seconds:g} s; send it again") from None


def checked(upload: Upload) -> Upload:
    """The upload with the suffix that its header tells; refused here if it is no usable image, before it is queued."""
    return replace(upload, suffix=_suffix(upload))


def _suffix(upload: Upload) -> str:
    if upload.size == 0:
        raise ApiError(400, "the upload is empty (0 bytes)")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit below is ours
            with Image.open(upload.path, formats=list(FORMATS)) as opened:
                kind, (width, height) = opened.format, opened.size
    except Image.DecompressionBombError:
        raise ApiError(400, "the upload unpacks to far more pixels than an inspection image has") from None
    except Exception:  # Pillow's readers raise many kinds on damaged files
        raise ApiError(
            400, "the upload is not an image in a known format; send PNG, JPEG, TIFF, BMP, WebP, GIF or PPM"
        ) from None
    if width * height > MAX_PIXELS:
        raise ApiError(400, f"the upload has {width}×{height} pixels; at most {MAX_PIXELS // 10**6} million are read")
    if min(width, height) < MIN_SIDE:
        raise ApiError(400, f"the upload is {width}×{height}; at least {MIN_SIDE} pixels a side are needed")
    return FORMATS.get(str(kind), ".jpg")  # Pillow calls a JPEG that holds several pictures MPO


def extended_name(disposition: bytes) -> str | None:
    """The `filename*` (RFC 5987) of a Content-Disposition. A form should have none (RFC 7578), but some clients send
    nothing else."""
    for name, value in PARAMETER.findall(disposition.decode("latin-1")):
        if name.lower() == "filename*":
            charset, _, rest = value.strip().strip('"').partition("'")
            encoded = rest.partition("'")[2] if rest else charset
            return unquote_to_bytes(encoded).decode(LATIN if charset.lower() == LATIN else "utf-8", "replace")
    return None


class _Form:
    """A multipart body, part by part into files; called from one thread after the other, never from two at once."""

    def __init__(self, boundary: bytes, pictures: PictureStore, limit: int, most: int) -> None:
        self.uploads: list[Upload] = []
        self._pictures, self._limit, self._most = pictures, limit, most
        self._paths: list[Path] = []
        self._file: BinaryIO | None = None
        self._name, self._value = b"", b""
        self._disposition = b""
        self._ended = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_header_field": self._header_name,
                "on_header_value": self._header_value,
                "on_header_end": self._header_end,
                "on_headers_finished": self._open,
                "on_part_data": self._take,
                "on_part_end": self._done,
                "on_end": self._end,
            },
        )

    def write(self, chunk: bytes) -> None:
        self._pictures.check_room(len(chunk))  # a client need not say beforehand how much it sends
        try:
            self._parser.write(chunk)
        except FormParserError:
            raise ApiError(400, "the request is not well-formed multipart/form-data") from None
        except OSError as error:
            raise ApiError(507, f"the upload cannot be kept: {error.strerror}; is the disk full?") from error

    def finish(self, chunk: bytes) -> None:
        """Write the last chunk; refuse what is not a whole form with a file in it."""
        self.write(chunk)
        if not self._ended:
            raise ApiError(400, "the upload broke off before its end; send it again")
        if not self.uploads:
            raise ApiError(400, f"the request holds no file in a field named {FIELD}")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        for path in self._paths:
            path.unlink(missing_ok=True)

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = self._value
        self._name, self._value = b"", b""

    def _open(self) -> None:
        _, options = parse_options_header(self._disposition)
        plain = options.get(b"filename")
        name = extended_name(self._disposition) if plain is None else plain.decode("utf-8", "replace")
        self._disposition = b""
        if options.get(b"name") != FIELD.encode() or name is None:
            return  # another field: read past
        if len(self._paths) == self._most:
            raise ApiError(400, f"at most {self._most} files are taken at once")
        self._image = as_text(name, NAME_LENGTH)
        path = self._pictures.new_upload()
        self._file = path.open("xb")
        self._paths.append(path)
        self._size, self._hash = 0, hashlib.sha256()

    def _take(self, data: bytes, start: int, end: int) -> None:
        if self._file is None:
            return
        self._size += end - start
        if self._size > self._limit:
            raise ApiError(413, f"an image may have {self._limit / 1e6:g} MB; this one has more")
        piece = data[start:end]
        self._hash.update(piece)
        self._file.write(piece)

    def _done(self) -> None:
        if self._file is None:
            return
        self._file.close()
        self._file = None
        self.uploads.append(Upload(self._paths[-1], self._image, self._size, self._hash.hexdigest()))

    def _end(self) -> None:
        self._ended = True
