import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import parts
import pytest
import torch
from PIL import Image

from nfad.artifact.file import read_header
from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.fleet.cluster import Cluster
from nfad.fleet.fit import fit_fleet
from nfad.fleet.products import Product, Wish, read_manifest, work_on


def tiny_of(pairs):
    return parts.tiny(**{name: int(value) for name, value in (pair.split("=") for pair in pairs)})


def write_photos(folder, seed, count=9):
    folder.mkdir(parents=True)
    for index in range(count):
        Image.fromarray(parts.part(seed + index)).save(folder / f"{index}.png")
    return folder


@pytest.fixture(scope="module")
def cluster():
    with Cluster(workers=2) as cluster:
        yield cluster


@pytest.fixture
def photos(tmp_path):
    for place, name in enumerate(("bolt", "cap", "nut")):
        write_photos(tmp_path / "photos" / name, 100 * place)
    return tmp_path / "photos"


def serially(product, path):
    """The file that one fit after another gives."""
    return Detector.fit(sorted(product.photos.iterdir()), product.config, device="cpu").save(path)


def same_models(one, other):
    (header, tensors), (their_header, their_tensors) = read_header(one), read_header(other)
    same = all(torch.equal(tensor, their_tensors[name]) for name, tensor in tensors.items())
    return same and header == their_header and tensors.keys() == their_tensors.keys()


def test_models_are_those_of_a_serial_run_to_the_last_digit_and_are_not_fitted_twice(cluster, photos, tmp_path):
    (photos / "empty").mkdir()
    products, wish = read_manifest(photos, tiny_of), Wish(tmp_path / "out", device="cpu")
    heard = []
    outcomes = dict(fit_fleet(products, wish, cluster, lambda *words: heard.append(words)))
    for index, product in enumerate(products):
        if product.name == "empty":
            assert "holds no images" in outcomes[index].error
            continue
        assert not outcomes[index].error and outcomes[index].photos == outcomes[index].fitted_on == 9
        assert same_models(wish.out / f"{product.name}.nfad", serially(product, tmp_path / "serial.nfad"))
    assert {stage for _, stage, _, _ in heard} and all(0 <= index < 4 for index, *_ in heard)

    Image.fromarray(parts.part(999)).save(photos / "cap" / "10.png")  # another photo: another model
    (wish.out / "nut.nfad").unlink()
    times = {path: path.stat().st_mtime_ns for path in wish.out.glob("*.nfad")}
    again = {outcome.name: outcome for _, outcome in fit_fleet(products, wish, cluster)}
    assert {name: outcome.kept for name, outcome in again.items() if not outcome.error} == {
        "bolt": True, "cap": False, "nut": False,
    }  # fmt: skip
    assert [path.stem for path, then in times.items() if path.stat().st_mtime_ns == then] == ["bolt"]


@pytest.mark.slow
def test_models_are_stressed_and_exported_on_request(cluster, photos, tmp_path):
    [product, *_] = read_manifest(photos, lambda _: parts.tiny(rank={"photometric": 8}))
    wish = Wish(tmp_path / "out", stress=True, export="onnx", device="cpu")
    [(_, outcome)] = fit_fleet([product], wish, cluster)
    assert not outcome.error and outcome.stress and outcome.export == "bolt-onnx"
    assert (wish.out / "bolt-onnx" / "model.onnx").is_file() and (wish.out / "bolt-stress" / "report.html").is_file()
    [(_, again)] = fit_fleet([product], wish, cluster)
    assert again.kept


def test_a_worker_killed_in_the_middle_of_a_fit_is_replaced(cluster, photos, tmp_path):
    products, out = read_manifest(photos, tiny_of), tmp_path / "out"

    def killed_once(product, wish, progress):
        def tell(stage, done, total):
            if stage == "learning nuisance" and product.name == "cap" and not (mark := wish.out / "killed").exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        return work_on(product, wish, None, tell)

    out.mkdir()
    found = dict(cluster.run(killed_once, [(product, Wish(out, device="cpu")) for product in products]))
    assert (out / "killed").exists()
    for index, product in enumerate(products):
        assert found[index].sha256
        assert same_models(out / f"{product.name}.nfad", serially(product, tmp_path / "serial.nfad"))


def test_a_product_that_kills_every_worker_is_reported_and_the_others_go_on(cluster):
    def deadly(number, progress):
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    found = dict(cluster.run(deadly, [(0,), (1,), (2,)]))
    assert found[0] == 0 and found[2] == 2
    assert isinstance(found[1], NfadError) and "its worker was lost 4 times" in str(found[1])


def test_weights_are_brought_to_the_worker_and_leave_no_trace_in_the_model(cluster, photos, tmp_path):
    import timm
    from safetensors.torch import save_file

    file = tmp_path / "weights" / "teacher.safetensors"
    file.parent.mkdir()
    save_file(timm.create_model("vit_tiny_patch16_224", num_classes=0, img_size=64).state_dict(), file)
    product = Product("bolt", photos / "bolt", parts.tiny(weights=str(file)))
    [(_, outcome)] = fit_fleet([product], Wish(tmp_path / "out", device="cpu"), cluster)
    assert not outcome.error
    assert same_models(tmp_path / "out" / "bolt.nfad", serially(product, tmp_path / "serial.nfad"))


@pytest.mark.slow
def test_a_killed_driver_goes_on_where_it_stopped(photos, tmp_path):
    settings = {name: value for name, value in parts.TINY.items() if name not in ("bank", "student", "epochs")}
    options = [
        f"--set={name}={list(v) if isinstance(v, tuple) else v!s}".replace("'", '"') for name, v in settings.items()
    ]
    out = tmp_path / "out"
    command = [sys.executable, "-m", "nfad", "fleet", "fit", str(photos), "-o", str(out), "--workers=1", *options]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list((out / ".fleet").glob("*.json")):
        assert driver.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    driver.kill()
    driver.wait()
    finished = {path: path.stat().st_mtime_ns for path in out.glob("*.nfad")}
    records = len(list((out / ".fleet").glob("*.json")))
    done = subprocess.run([*command, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kept = [each["name"] for each in json.loads(done.stdout) if each["kept"]]
    assert 1 <= records <= len(kept) < 3
    assert all(path.stat().st_mtime_ns == then for path, then in finished.items() if path.stem in kept)
    for product in read_manifest(photos, lambda _: parts.Config.from_dict(settings)):
        assert same_models(out / f"{product.name}.nfad", serially(product, tmp_path / "serial.nfad"))


def test_a_manifest_is_checked_before_anything_is_fitted(tmp_path):
    write_photos(tmp_path / "a", 0, 1)
    table = tmp_path / "fleet.csv"

    def read(text):
        table.write_text(text)
        return read_manifest(table, tiny_of)

    products = read("name,photos,settings\nbolt,a,size=96; seed=3\ncap,a,\n")
    assert [(each.name, each.config.size, each.config.seed) for each in products] == [("bolt", 96, 3), ("cap", 64, 54)]
    assert products[0].photos == tmp_path / "a"
    for text, told in {
        "name,folder\nbolt,a\n": "must have the columns name, photos",
        "name,photos\n": "names no product",
        "name,photos\n,a\n": "line 2: name and photos must not be empty",
        "name,photos\n../../bolt,a\n": "cannot become a file's",
        "name,photos\nbolt,a\nBolt,a\n": "names 'bolt' 2 times",
        "name,photos,settings\nbolt,a,size=65\n": "line 2: size must be a multiple of 16",
    }.items():
        with pytest.raises(NfadError, match=told):
            read(text)
    with pytest.raises(NfadError, match="does not exist"):
        read_manifest(Path("nowhere"), tiny_of)
