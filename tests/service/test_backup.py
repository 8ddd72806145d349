"""A station is backed up while it works, and comes back as it was or not at all."""

import io
import json
import subprocess
import tarfile
from contextlib import closing

import pytest
from commands import nfad
from service.serving import image, png, serving
from service.test_durability import Clients, check

from nfad.errors import NfadError
from nfad.service import backup as backups
from nfad.service.backup import backup, restore
from nfad.service.store import Filters, Store
from nfad.system.archive import archive, extract


@pytest.fixture(scope="module")
def station(model, tmp_path_factory):
    """A data folder with some history, and a backup of it."""
    data = tmp_path_factory.mktemp("station") / "data"
    with serving([f"line-3={model}"], data) as client:
        found = [client.post("/v1/inspect", files=image(png(seed))).json() for seed in range(3)]
        client.put(f"/v1/inspections/{found[0]['id']}/review", json={"verdict": "bad"})
        client.put("/v1/models/line-3/rate", json={"rate": 0.3}).raise_for_status()
    backup(data, data.parent / "kept.tar")
    return data


@pytest.fixture
def kept(station):
    return station.parent / "kept.tar"


def everything(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix in (".jpg", ".png", ".tif")
    }


def rows(data):
    with closing(Store(f"sqlite:///{data / 'inspections.db'}")) as store:
        return store.identity, store.rate("line-3"), list(store.every(Filters()))


def test_a_restored_station_is_the_one_that_was(station, kept, model, tmp_path):
    said = nfad("station", "restore", kept, "--data", tmp_path / "new").stdout
    assert "3 inspections, 3 with pictures" in said
    assert rows(tmp_path / "new") == rows(station) and everything(tmp_path / "new") == everything(station)
    restored = tmp_path / "new" / "models" / "line-3.nfad"
    assert str(restored) in said.replace("\n", "") and restored.read_bytes() == model.read_bytes()
    with serving([f"line-3={restored}"], tmp_path / "new") as client:
        assert client.get("/v1/models").json()["models"][0]["false_alarm_rate"] == 0.3
        assert client.post("/v1/inspect", files=image()).status_code == 200


def test_other_tools_read_it_too(kept, tmp_path):
    subprocess.run(["tar", "xf", kept, "-C", tmp_path], check=True)
    told = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert len(told.stdout.splitlines()) == 3 * 3 + 3


def test_a_station_under_load_is_backed_up_at_one_moment(model, tmp_path):
    with serving([model], tmp_path / "data") as client:
        clients = Clients(str(client.base_url))
        while len(clients.kept) < 5:
            pass
        before = list(clients.kept)
        made = backup(tmp_path / "data", tmp_path)
        clients.stop()
    assert made.inspections == made.pictures >= len(before)
    restore(made.path, tmp_path / "new")
    with serving([tmp_path / "new" / made.models[0]], tmp_path / "new") as client:
        check(str(client.base_url), tmp_path / "new", before)
    assert not (tmp_path / "new" / "quarantine").exists()


def test_pictures_that_retention_removes_meanwhile_are_told_as_removed(station, tmp_path, monkeypatch):
    _, _, [newest, *_] = rows(station)
    unhindered = backups._add_pictures

    def racing(add, data, inspection):
        if inspection.id != newest.id:
            return unhindered(add, data, inspection)
        victim = backups.folder_of(data, newest.id) / "maps.tif"
        content = victim.read_bytes()
        victim.unlink()
        try:
            return unhindered(add, data, inspection)
        finally:
            victim.write_bytes(content)

    monkeypatch.setattr(backups, "_add_pictures", racing)
    made = backup(station, tmp_path / "b.tar")
    assert (made.inspections, made.pictures) == (3, 2)
    restore(made.path, tmp_path / "new")
    assert [each.pictures for each in rows(tmp_path / "new")[2]] == [False, True, True]


def test_nothing_is_overwritten_unasked(station, kept, tmp_path):
    assert "--force" in nfad("station", "backup", kept, "--data", station, code=2).stderr
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "mine").write_text("mine")
    with pytest.raises(NfadError, match="not empty"):
        restore(kept, tmp_path / "old")
    restore(kept, tmp_path / "old", force=True)
    [aside] = tmp_path.glob("old-before-*")
    assert (aside / "mine").read_text() == "mine" and rows(tmp_path / "old") == rows(station)
    with pytest.raises(NfadError, match=r"inspections\.db"):
        backup(aside, tmp_path / "b.tar")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["old", aside.name])


def test_a_station_that_runs_is_not_replaced(station, kept, model):
    with serving([f"line-3={model}"], station), pytest.raises(NfadError, match="stop it first"):
        restore(kept, station, force=True)


def test_a_damaged_backup_changes_nothing(kept, tmp_path):
    """Cut off anywhere, or with any byte changed that is not padding."""
    whole = kept.read_bytes()
    with tarfile.open(kept) as tar:
        places = [member.offset_data + member.size // 2 for member in tar] + [member.offset for member in tar]
    damaged = tmp_path / "damaged.tar"
    for place in places:
        for content in (whole[:place], whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]):
            damaged.write_bytes(content)
            with pytest.raises(NfadError, match="whole backup"):
                restore(damaged, tmp_path / "new")
            assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged.tar"]


@pytest.mark.parametrize("name", ["../outside", "/etc/nfad", "pictures/../../outside", "models/.hidden", "lock"])
def test_names_that_no_backup_has_are_refused(name, tmp_path):
    with (tmp_path / "b.tar").open("wb") as file, archive(file) as add:
        add(name, io.BytesIO(b"mine"))
    with pytest.raises(NfadError, match="no backup does"):
        restore(tmp_path / "b.tar", tmp_path / "new")


def test_a_link_is_refused(tmp_path):
    with tarfile.open(tmp_path / "b.tar", "w") as tar:
        member = tarfile.TarInfo("models/part.nfad")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(NfadError, match="no backup does"):
        extract(tmp_path / "b.tar", tmp_path, backups.MEMBERS)


@pytest.mark.parametrize("about", ["[]", "{}", "nonsense", json.dumps({"format": 9, "nfad": "9.0"})])
def test_what_is_no_station_is_a_sentence(about, tmp_path):
    with (tmp_path / "b.tar").open("wb") as file, archive(file) as add:
        add("backup.json", io.BytesIO(about.encode()))
    with pytest.raises(NfadError, match=r"no backup of a station|nfad 9\.0"):
        restore(tmp_path / "b.tar", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_model_that_was_changed_since_is_not_taken_for_the_served_one(model, tmp_path):
    own = tmp_path / "own.nfad"
    own.write_bytes(model.read_bytes())
    with serving([own], tmp_path / "data"):
        pass
    own.write_bytes(b"other")
    with pytest.raises(NfadError, match="last served"):
        backup(tmp_path / "data", tmp_path / "b.tar")
    assert not (tmp_path / "b.tar").exists()


def test_from_sqlite_to_postgresql_and_back(station, kept, model, database, tmp_path):
    restore(kept, tmp_path / "moved", database)
    assert not (tmp_path / "moved" / "inspections.db").exists()
    with serving([f"line-3={model}"], tmp_path / "moved", db=database) as client:
        assert len(client.get("/v1/inspections").json()["inspections"]) == 3
    made = backup(tmp_path / "moved", tmp_path / "b.tar", database)
    restore(made.path, tmp_path / "back")
    assert rows(tmp_path / "back") == rows(station)
    with pytest.raises(NfadError, match="holds inspections"):
        restore(kept, tmp_path / "again", database)
    assert not (tmp_path / "again").exists()
    restore(kept, tmp_path / "again", database, force=True)
