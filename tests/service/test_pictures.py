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
from nfad.service.errors import ApiError
from nfad.service.pictures import LOW, SPAN, Entry, Pictures, PictureStore, encode_pictures, raw
from nfad.service.record import first_id, new_id, time_of
from nfad.service.service import apply_retention
from nfad.service.settings import Retention

PICTURES = Pictures(b"thumbnail", b"maps")


@pytest.fixture
def store(tmp_path):
    store = PictureStore(tmp_path / "data")
    yield store
    store.close()


def entry(store, id=None):
    upload = store.new_upload()
    upload.write_bytes(b"original")
    return Entry(id or new_id(), upload, ".png", PICTURES)


def test_entries_appear_whole_and_leave_no_upload(store):
    entries = [entry(store) for _ in range(3)]
    store.put(entries)
    for each in entries:
        assert store.path(each.id, "original.png").read_bytes() == b"original"
        assert store.path(each.id, "thumbnail.jpg").read_bytes() == b"thumbnail"
        assert store.path(each.id, "none") is None
    assert not list((store.root / "incoming").iterdir())


def test_if_one_cannot_be_kept_none_is(store):
    entries = [entry(store) for _ in range(3)]
    entries[1].upload.unlink()
    with pytest.raises(ApiError) as refused:
        store.put(entries)
    assert refused.value.status == 507
    assert all(store.path(each.id, "thumbnail.jpg") is None for each in entries)


def test_a_start_sets_aside_what_a_crash_left_and_nothing_else(tmp_path, caplog):
    store = PictureStore(tmp_path)
    kept, lost = entry(store), entry(store)
    store.put([kept, lost])
    store.new_upload().write_bytes(b"half an upload")
    store.close()
    again = PictureStore(tmp_path)
    again.sweep(lambda ids: set(ids) & {kept.id})
    assert again.path(kept.id, "maps.tif") and again.path(lost.id, "maps.tif") is None
    assert (tmp_path / "quarantine" / lost.id / "original.png").read_bytes() == b"original"
    assert "1 inspections" in caplog.text and str(tmp_path / "quarantine") in caplog.text
    assert not list((tmp_path / "incoming").iterdir())
    again.close()


def test_an_older_database_that_is_restored_costs_no_picture(model, tmp_path):
    """All that it does not know is set aside, whole."""
    with serving([model], tmp_path) as client:
        known = client.post("/v1/inspect", files=image()).json()["id"]
    shutil.copy(tmp_path / "inspections.db", tmp_path / "backup.db")
    with serving([model], tmp_path) as client:
        later = {client.post("/v1/inspect", files=image(png(seed))).json()["id"]: png(seed) for seed in range(5)}
    for left in tmp_path.glob("inspections.db*"):
        left.unlink()
    shutil.copy(tmp_path / "backup.db", tmp_path / "inspections.db")
    with serving([model], tmp_path) as client:
        assert [each["id"] for each in client.get("/v1/inspections").json()["inspections"]] == [known]
        assert client.get(f"/v1/inspections/{known}/original").status_code == 200
        aside = {each.name: (each / "original.png").read_bytes() for each in (tmp_path / "quarantine").iterdir()}
        assert aside == later


def test_one_process_and_one_database_a_folder(store):
    with pytest.raises(NfadError, match="another `nfad serve`"):
        PictureStore(store.root)
    store.bind_to("a")
    store.bind_to("a")
    with pytest.raises(NfadError, match="another database"):
        store.bind_to("b")


@given(st.floats(-1e9, 1e9))
def test_maps_are_kept_to_a_step(value):
    kept = float(raw(np.array([value]))[0]) / 65535 * SPAN + LOW
    assert abs(kept - min(max(value, LOW), LOW + SPAN)) <= 0.51 * SPAN / 65535


@pytest.mark.parametrize("same", [True, False])
def test_maps_are_kept_once_each_and_smooth_ones_lose_little(store, same):
    wave = np.hypot(*np.meshgrid(np.linspace(-4, 4, 64), np.linspace(-4, 4, 64)))
    waves = {"map": wave, "unfiltered_map": wave / 2} | ({} if same else {"detection_map": 2 * wave})
    maps = {name: 3 * np.cos(each, dtype=np.float32) for name, each in waves.items()}
    prediction = SimpleNamespace(**{"detection_map": None} | maps)
    pictures = encode_pictures(np.zeros((9, 9, 3), np.uint8), prediction)
    kept = Entry(new_id(), store.new_upload(), ".png", pictures)
    kept.upload.write_bytes(b"original")
    store.put([kept])
    with Image.open(store.path(kept.id, "maps.tif")) as opened:
        assert opened.size == (32, 64 if same else 96)
    for name, wanted in maps.items():
        back = Image.fromarray(store.map(kept.id, name)).resize((64, 64), Image.Resampling.BICUBIC)
        assert np.abs(np.asarray(back) - wanted)[2:-2, 2:-2].max() < 0.02 * np.ptp(wanted)


def test_room_is_checked_against_what_is_free(store):
    store.check_room()
    with pytest.raises(ApiError) as refused:
        store.check_room(shutil.disk_usage(store.root).total * 2)
    assert refused.value.status == 507


@pytest.mark.parametrize("retention", [Retention(count=2), Retention(days=3)])
def test_retention_removes_pictures_and_keeps_records(model, tmp_path, retention):
    with serving([model], tmp_path) as client:
        answers = [client.post("/v1/inspect", files=image(png(seed))).json() for seed in range(4)]
        service = client.service
        now = datetime.now(UTC)
        if retention.days:
            assert apply_retention(service.store, service.pictures, retention, now) == 0
            now = time_of(answers[2]["id"]) + timedelta(days=3)
        assert apply_retention(service.store, service.pictures, retention, now) == 2
        assert apply_retention(service.store, service.pictures, retention, now) == 0
        for before, gone in zip(answers, (True, True, False, False)):
            after = client.get(f"/v1/inspections/{before['id']}").json()
            assert after | {"camera": None} == before | ({"images": None} if gone else {})
            for address in before["images"].values():
                answer = client.get(address)
                assert answer.status_code == (404 if gone else 200)
                assert not gone or "removed" in answer.json()["error"]


def test_retention_runs_by_itself(model, tmp_path):
    with serving([model], tmp_path) as client:
        old = client.post("/v1/inspect", files=image()).json()
        client.post("/v1/inspect", files=image())
    with serving([model], tmp_path, retention=Retention(count=1)) as client:
        for _ in range(200):
            if client.get(f"/v1/inspections/{old['id']}").json()["images"] is None:
                return
    raise AssertionError("the older pictures were not removed")


def test_days_without_pictures_go(store):
    ids = [first_id(day * 86_400_000) for day in (20_000, 20_001)]
    store.put([entry(store, id) for id in ids])
    store.remove(ids[0])
    store.remove_empty_days()
    assert [day.name for day in (store.root / "pictures").iterdir()] == [f"{time_of(ids[1]):%Y-%m-%d}"]
