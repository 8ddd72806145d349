import io
import socket
import struct
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from service.serving import image, png, serving

from nfad.service.pictures import PictureStore
from nfad.watch.arrivals import status_of

ALIVE = {"status": "ok"}


def encoded(pixels, kind, **options):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


def bomb(side):
    """A few kilobytes that say, truthfully, that they unpack to side² pixels."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    pack = zlib.compressobj(9)
    rows = b"".join(pack.compress(bytes(side // 8 + 1)) for _ in range(side)) + pack.flush()
    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def refused(client, content, name="part.png", status=400):
    answer = client.post("/v1/inspect", files=image(content, name))
    assert answer.status_code == status and list(answer.json()) == ["error"], answer.text
    sentence = answer.json()["error"]
    assert str(client.service.settings.data) not in sentence and "Traceback" not in sentence
    return sentence


def nothing_left(client):
    return not list((client.service.settings.data / "incoming").iterdir())


FRAMES = [Image.fromarray(np.full((32, 32, 3), value, np.uint8)) for value in (0, 255)]
MOVING = io.BytesIO()
FRAMES[0].save(MOVING, "GIF", save_all=True, append_images=FRAMES[1:])
BAD = {
    "empty": (b"", "empty"),
    "text": (b"hello", "not an image"),
    "html": (b"<html><script>alert(1)</script></html>", "not an image"),
    "svg": (b'<svg xmlns="http://www.w3.org/2000/svg" width="99" height="99"/>', "not an image"),
    "eps": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 99 99\n(/etc/passwd) run\n", "not an image"),
    "pdf": (b"%PDF-1.4\n", "not an image"),
    "truncated jpeg": (png(1, 200, kind="JPEG")[:3000], "cannot be read"),
    "truncated png": (png(1, 200)[:3000], "cannot be read"),
    "header only": (png()[:33], "not an image"),
    "two frames": (MOVING.getvalue(), "2 frames"),
    "floats": (encoded(np.zeros((32, 32), np.float32), "TIFF"), "floating-point"),
    "tiny": (encoded(np.zeros((8, 99, 3), np.uint8), "PNG"), "16 pixels"),
    "bomb": (bomb(10_001), "100 million"),
    "great bomb": (bomb(14_000), "pixels"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_images_are_a_sentence_and_leave_nothing(client, kind):
    content, wanted = BAD[kind]
    before = client.get("/v1/inspections").json()
    assert wanted in refused(client, content)
    assert nothing_left(client) and client.get("/healthz").json() == ALIVE
    assert client.get("/v1/inspections").json() == before


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "BMP", "WEBP", "PPM", "GIF"])
def test_every_usual_format_is_taken(client, kind):
    answer = client.post("/v1/inspect", files=image(png(kind=kind), "x"))
    assert answer.status_code == 200, answer.text


def test_sixteen_bits_and_transparency_are_taken(client):
    deep = encoded((np.random.default_rng(0).random((40, 40)) * 65535).astype(np.uint16), "PNG")
    clear = encoded(np.zeros((40, 40, 4), np.uint8), "PNG")
    for content in (deep, clear):
        assert client.post("/v1/inspect", files=image(content)).status_code == 200


@settings(max_examples=25)
@given(st.data())
def test_a_damaged_image_is_judged_or_refused_but_never_worse(client, data):
    content = bytearray(png(3, kind=data.draw(st.sampled_from(["PNG", "JPEG", "TIFF", "BMP", "WEBP", "GIF"]))))
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = bytes(content[: data.draw(st.integers(0, len(content)))])
    assert client.post("/v1/inspect", files=image(content)).status_code in (200, 400)


def test_a_polyglot_is_shown_as_an_image_and_nothing_else(client):
    content = png(4, kind="JPEG") + b"<script>alert(document.cookie)</script><?php system('id'); ?>"
    answer = client.post("/v1/inspect", files=image(content, "x.html")).json()
    for name, address in answer["images"].items():
        shown = client.get(address)
        wanted = "application/octet-stream" if name == "original" else "image/"
        assert shown.headers["content-type"].startswith(wanted)
        assert shown.headers["x-content-type-options"] == "nosniff"
        assert (b"<script>" in shown.content) == (name == "original")
    original = client.get(answer["images"]["original"])
    assert original.headers["content-disposition"] == f'attachment; filename="{answer["id"]}.jpg"'


NAMES = ["../../../etc/passwd", "/etc/passwd", "..\\..\\x.png", "a\0b.png", "<img src=x>.png", "é" * 300, "", "名.png"]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_name_is_text_and_never_a_path(client, name):
    body = b'--x\r\nContent-Disposition: form-data; name="image"; filename="' + name.encode() + b'"\r\n\r\n'
    body += png() + b"\r\n--x--\r\n"
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = client.post("/v1/inspect", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    kept = answer.json()["image"]
    assert len(kept) <= 255 and "\0" not in kept and name.replace("\0", "").startswith(kept)
    root = client.service.settings.data
    assert {path.name for path in root.iterdir()} <= {
        "database", "incoming", "lock", "pictures", "inspections.db", "inspections.db-wal", "inspections.db-shm",
        "lock-journal", "models.json", "session.key",
    }  # fmt: skip
    for folder in (root / "pictures").glob("*/*"):
        assert len(folder.name) == 22 and {path.stem for path in folder.iterdir()} == {
            "original", "thumbnail", "maps",
        }  # fmt: skip


def post_named(client, disposition):
    """An upload whose part says this of itself."""
    body = b"--x\r\nContent-Disposition: form-data; " + disposition + b"\r\n\r\n" + png() + b"\r\n--x--\r\n"
    return client.post("/v1/inspect", content=body, headers={"Content-Type": "multipart/form-data; boundary=x"})


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        (b"name=image; filename*=UTF-8''na%C3%AFve%20%E5%90%8D.png", "naïve 名.png"),
        (b"name=\"image\"; filename*=utf-8'de'a.png", "a.png"),
        (b"name=image;FILENAME*=iso-8859-1''%E9.png", "é.png"),
        (b"name=image; filename*=unheard-of''%C3%A9.png", "é.png"),
        (b"name=image; filename*=rot13''%C3%A9.png", "é.png"),
        (b"name=image; filename*=utf-8''%FF%00a.png", "\ufffda.png"),
        (b'name="image"; filename*="UTF-8\'\'a%3Bb.png"', "a;b.png"),
        (b"name=image; filename*=plain.png", "plain.png"),
        (b"name=image; filename*=", ""),
        (b"name=image; filename=\"a.png\"; filename*=utf-8''b.png", "a.png"),
    ],
)
def test_a_file_may_be_named_in_the_extended_way_alone(client, disposition, name):
    answer = post_named(client, disposition)
    assert answer.status_code == 200 and answer.json()["image"] == name, answer.text


@pytest.mark.parametrize(
    "disposition",
    [b'name="other; filename*=a.png"', b"name=other; filename*=utf-8''a.png", b'name=image; x="; filename*=a"'],
)
def test_what_only_looks_like_a_file_name_is_none(client, disposition):
    answer = post_named(client, disposition)
    assert answer.status_code == 400 and "no file in a field named image" in answer.json()["error"]


@pytest.mark.parametrize(
    ("headers", "content"),
    [
        ({}, b""),
        ({"Content-Type": "application/json"}, b"{}"),
        ({"Content-Type": "multipart/form-data"}, b"--x--"),
        ({"Content-Type": "multipart/form-data; boundary=" + 300 * "x"}, b""),
        ({"Content-Type": "multipart/form-data; boundary=x"}, b"rubbish"),
        ({"Content-Type": "multipart/form-data; boundary=x"}, b"--x--\r\n"),
        ({"Content-Type": "multipart/form-data; boundary=x"}, b"--x\r\n" + 5000 * b"a: b\r\n" + b"\r\n\r\n--x--\r\n"),
        ({"Content-Type": "multipart/form-data; boundary=x"}, b"--x\r\n" + 99999 * b"a" + b": b\r\n\r\n\r\n--x--\r\n"),
        (
            {"Content-Type": "multipart/form-data; boundary=x"},
            b'--x\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n' + png(),
        ),
        (
            {"Content-Type": "multipart/form-data; boundary=x"},
            b'--x\r\nContent-Disposition: form-data; name="image"\r\n\r\nno file\r\n--x--\r\n',
        ),
    ],
)
def test_a_bad_form_is_a_400(client, headers, content):
    answer = client.post("/v1/inspect", content=content, headers=headers)
    assert answer.status_code == 400 and list(answer.json()) == ["error"], answer.text
    assert nothing_left(client)


def test_two_files_are_one_too_many_for_inspect(client):
    files = [("image", (name, png(), "image/png")) for name in "ab"]
    assert client.post("/v1/inspect", files=files).status_code == 400
    assert nothing_left(client)


def test_limits_hold_while_the_upload_arrives(model, tmp_path):
    with serving([model], tmp_path, upload_limit=100_000, upload_seconds=0.5) as client:
        assert "0.1 MB" in refused(client, bytes(150_000), status=413)
        form = {"Content-Type": "multipart/form-data; boundary=x"}
        endless = client.post(
            "/v1/inspect",
            content=(bytes(50_000) for _ in range(40)),  # no length is announced
            headers=form,
        )
        assert endless.status_code in (400, 413)
        files = [("image", (f"{i}.png", bytes(90_000), "image/png")) for i in range(30)]
        assert client.post("/v1/batch", files=files).status_code == 413
        slow = client.post("/v1/inspect", content=_slowly(), headers=form)
        assert slow.status_code == 408
        assert nothing_left(client)
        assert client.post("/v1/inspect", files=image()).status_code == 200


def _slowly():
    yield b'--x\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'
    for _ in range(8):
        time.sleep(0.1)
        yield b"a"


def test_a_client_that_vanishes_while_sending_leaves_nothing(client):
    head = b"POST /v1/inspect HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999\r\n"
    head += b"Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
    head += b'Content-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'
    for _ in range(5):
        with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
            connection.sendall(head + bytes(5000))
    assert client.post("/v1/inspect", files=image()).status_code == 200
    for _ in range(100):
        if nothing_left(client):
            return
        client.get("/healthz")
    raise AssertionError("uploads of clients that are gone were not removed")


def test_a_full_disk_is_a_507_before_anything_is_read(model, tmp_path):
    with serving([model], tmp_path) as client:
        client.service.pictures._least_free = 1 << 60
        assert "disk" in refused(client, png(), status=507)
        assert nothing_left(client)
        client.service.pictures._least_free = 0
        assert client.post("/v1/inspect", files=image()).status_code == 200


def test_uploads_of_unknown_size_leave_the_disk_what_the_service_needs(model, tmp_path, monkeypatch):
    """A disk of 20 MB, of which 8 must stay free; four clients say nothing and send 60 MB each."""
    incoming, least = tmp_path / "incoming", []

    def free(_):
        least.append(20_000_000 - sum(status.size for file in incoming.iterdir() if (status := status_of(file))))
        return least[-1]

    def body():
        yield b'--x\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'
        for _ in range(60):
            yield bytes(1_000_000)
        yield b"\r\n--x--\r\n"

    with serving([model], tmp_path) as client, ThreadPoolExecutor(4) as pool:
        monkeypatch.setattr(PictureStore, "free", free)
        client.service.pictures._least_free = 8_000_000
        headers = {"Content-Type": "multipart/form-data; boundary=x"}

        def send(_):
            return httpx.post(client.base_url.join("/v1/inspect"), content=body(), headers=headers, timeout=60)

        assert [answer.status_code for answer in pool.map(send, range(4))] == 4 * [507]
        assert min(least) > 3_000_000 and not list(incoming.iterdir())
