import subprocess
import sys

import numpy as np
import pytest
from parts import part
from PIL import Image
from service.serving import image, png, serving

from nfad.deploy.export import export
from nfad.model import load_model


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    root = tmp_path_factory.mktemp("exported")
    for seed in range(8):
        Image.fromarray(part(seed)).save(root / f"{seed}.png")
    export(model, root / "line", normals=sorted(root.glob("*.png")))
    return root / "line"


@pytest.mark.slow  # torch's exporter takes its time
def test_an_exported_model_is_served_like_the_fitted_one(model, exported, tmp_path):
    fitted, runtime = load_model(model), load_model(exported)
    assert runtime.threshold == fitted.threshold and runtime.config.batch == fitted.config.batch
    assert runtime.normals == fitted.normals and runtime.sha256 != fitted.sha256
    with serving([model, exported], tmp_path) as client:
        assert client.put("/v1/models/line/rate", json={"rate": 0.5}).json()["false_alarm_rate"] == 0.5
        assert client.put("/v1/models/part/rate", json={"rate": 0.5}).json()["false_alarm_rate"] == 0.5
        for seed in (3, 4):
            one, other = (
                client.post("/v1/inspect", params={"model": name}, files=image(png(seed, defect=seed == 4))).json()
                for name in ("part", "line")
            )
            assert one["score"] == pytest.approx(other["score"], rel=1e-3) and one["verdict"] == other["verdict"]
            assert one["threshold"] == other["threshold"] and one["explanation"] == other["explanation"]
        deep = Image.fromarray((np.random.default_rng(0).random((40, 40)) * 65535).astype(np.uint16))
        deep.save(tmp_path / "deep.png")
        answer = client.post("/v1/inspect", params={"model": "line"}, files=image((tmp_path / "deep.png").read_bytes()))
        assert answer.status_code == 400 and "16 bits" in answer.json()["error"]
        files = [("image", (name, content, "")) for name, content in zip("abc", (png(1), png(1), png(2)))]
        assert client.post("/v1/batch", params={"model": "line"}, files=files).status_code == 200


def test_the_service_itself_needs_no_torch():
    script = "import sys, nfad.service.app, nfad.deploy.runtime; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
