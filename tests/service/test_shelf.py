import shutil
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from service.serving import image, png, serving

from nfad.errors import NfadError
from nfad.service.record import first_id, new_id, time_of
from nfad.service.refusal import Refused
from nfad.service.service import tidy
from nfad.service.settings import Keep
from nfad.service.shelf import LOW, SPAN, Entry, Pictures, Shelf, drawn, raw

PICTURES = Pictures(b"thumbnail", b"maps")


@pytest.fixture
def shelf(tmp_path):
    shelf = Shelf(tmp_path / "data")
    yield shelf
    shelf.close()


def entry(shelf, id=None):
    upload = shelf.new_upload()
    upload.write_bytes(b"original")
    return Entry(id or new_id(), upload, ".png", PICTURES)


def test_entries_appear_whole_and_leave_no_upload(shelf):
    entries = [entry(shelf) for _ in range(3)]
    shelf.put(entries)
    for each in entries:
        assert shelf.path(each.id, "original.png").read_bytes() == b"original"
        assert shelf.path(each.id, "thumbnail.jpg").read_bytes() == b"thumbnail"
        assert shelf.path(each.id, "none") is None
    assert not list((shelf.root / "incoming").iterdir())


def test_if_one_cannot_be_kept_none_is(shelf):
    entries = [entry(shelf) for _ in range(3)]
    entries[1].upload.unlink()
    with pytest.raises(Refused) as refused:
        shelf.put(entries)
    assert refused.value.status == 507
    assert all(shelf.path(each.id, "thumbnail.jpg") is None for each in entries)


def test_a_start_removes_what_a_crash_left_and_nothing_else(tmp_path):
    shelf = Shelf(tmp_path)
    kept, lost = entry(shelf), entry(shelf)
    shelf.put([kept, lost])
    shelf.new_upload().write_bytes(b"half an upload")
    shelf.close()
    again = Shelf(tmp_path)
    again.sweep(lambda ids: set(ids) & {kept.id})
    assert again.path(kept.id, "maps.tif") and again.path(lost.id, "maps.tif") is None
    assert not list((tmp_path / "incoming").iterdir())
    again.close()


def test_one_process_and_one_database_a_folder(shelf):
    with pytest.raises(NfadError, match="another `nfad serve`"):
        Shelf(shelf.root)
    shelf.belong_to("a")
    shelf.belong_to("a")
    with pytest.raises(NfadError, match="another database"):
        shelf.belong_to("b")


@given(st.floats(-1e9, 1e9))
def test_maps_are_kept_to_a_step(value):
    kept = float(raw(np.array([value]))[0]) / 65535 * SPAN + LOW
    assert abs(kept - min(max(value, LOW), LOW + SPAN)) <= 0.51 * SPAN / 65535


@pytest.mark.parametrize("same", [True, False])
def test_maps_are_kept_once_each_and_smooth_ones_lose_little(shelf, same):
    wave = np.hypot(*np.meshgrid(np.linspace(-4, 4, 64), np.linspace(-4, 4, 64)))
    waves = {"map": wave, "detection_map": wave if same else 2 * wave, "unfiltered_map": wave / 2}
    maps = {name: 3 * np.cos(each, dtype=np.float32) for name, each in waves.items()}
    kept = Entry(new_id(), shelf.new_upload(), ".png", drawn(np.zeros((9, 9, 3), np.uint8), SimpleNamespace(**maps)))
    kept.upload.write_bytes(b"original")
    shelf.put([kept])
    with Image.open(shelf.path(kept.id, "maps.tif")) as opened:
        assert opened.size == (32, 64 if same else 96)
    for name, wanted in maps.items():
        back = Image.fromarray(shelf.map(kept.id, name)).resize((64, 64), Image.Resampling.BICUBIC)
        assert np.abs(np.asarray(back) - wanted)[2:-2, 2:-2].max() < 0.02 * np.ptp(wanted)


def test_room_is_checked_against_what_is_free(shelf):
    shelf.check_room()
    with pytest.raises(Refused) as refused:
        shelf.check_room(shutil.disk_usage(shelf.root).total * 2)
    assert refused.value.status == 507


@pytest.mark.parametrize("keep", [Keep(count=2), Keep(days=3)])
def test_retention_removes_pictures_and_keeps_records(model, tmp_path, keep):
    with serving([model], tmp_path) as client:
        answers = [client.post("/v1/inspect", files=image(png(seed))).json() for seed in range(4)]
        service = client.service
        now = datetime.now(UTC)
        if keep.days:
            assert tidy(service.store, service.shelf, keep, now) == 0
            now = time_of(answers[2]["id"]) + timedelta(days=3)
        assert tidy(service.store, service.shelf, keep, now) == 2
        assert tidy(service.store, service.shelf, keep, now) == 0
        for before, gone in zip(answers, (True, True, False, False)):
            after = client.get(f"/v1/inspections/{before['id']}").json()
            assert after == before | ({"images": None} if gone else {})
            for address in before["images"].values():
                answer = client.get(address)
                assert answer.status_code == (404 if gone else 200)
                assert not gone or "removed" in answer.json()["error"]


def test_retention_runs_by_itself(model, tmp_path):
    with serving([model], tmp_path) as client:
        old = client.post("/v1/inspect", files=image()).json()
        client.post("/v1/inspect", files=image())
    with serving([model], tmp_path, keep=Keep(count=1)) as client:
        for _ in range(200):
            if client.get(f"/v1/inspections/{old['id']}").json()["images"] is None:
                return
    raise AssertionError("the older pictures were not removed")


def test_days_without_pictures_go(shelf):
    ids = [first_id(day * 86_400_000) for day in (20_000, 20_001)]
    shelf.put([entry(shelf, id) for id in ids])
    shelf.remove(ids[0])
    shelf.remove_empty_days()
    assert [day.name for day in (shelf.root / "pictures").iterdir()] == [f"{time_of(ids[1]):%Y-%m-%d}"]
