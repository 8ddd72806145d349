import hashlib

import numpy as np
import pytest
from parts import part
from service.serving import image, png

from nfad import Detector
from nfad.records import RECORD_FIELDS, InspectionRecord
from nfad.report.pictures import full_at

EXTRAS = ("width", "height", "view", "scale", "review", "images")


@pytest.mark.parametrize("defect", [False, True])
def test_an_inspection_is_the_record_of_the_prediction_and_then_the_services_own(client, model, defect):
    detector = Detector.load(model)
    content = png(31, 80, defect)
    answer = client.post("/v1/inspect", params={"model": "part"}, files=image(content, "x.png")).json()
    assert tuple(answer) == (*RECORD_FIELDS, *EXTRAS, "camera") and answer.pop("camera") is None
    prediction = detector.predict(part(31, 80, defect))
    wanted = InspectionRecord.of(
        prediction, id=answer["id"], time=answer["time"], image="x.png", sha256=hashlib.sha256(content).hexdigest(),
        model="part", model_sha256=detector.sha256, false_alarm_rate=0.2, milliseconds=answer["milliseconds"],
    ).as_dict()  # fmt: skip
    tolerance = float(1e4 * np.finfo(np.float32).eps * max(1, abs(prediction.score)))
    for name in RECORD_FIELDS:
        assert answer[name] == pytest.approx(wanted[name], abs=tolerance), name
    assert (answer["width"], answer["height"], answer["scale"]) == (80, 80, full_at(detector.threshold))
    assert answer == client.get(f"/v1/inspections/{answer['id']}").json()


def test_openapi_describes_the_record_in_its_order(client):
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    for name, more in (("InspectionOut", ()), ("Inspected", ("camera",))):
        assert (
            tuple(schemas[name]["properties"]) == (*RECORD_FIELDS, *EXTRAS, *more) == tuple(schemas[name]["required"])
        )


def test_a_batch_tells_of_each_file(client):
    files = [("image", (f"{i}.png", png(i), "image/png")) for i in range(11)]
    files.insert(4, ("image", ("notes.txt", b"not an image", "text/plain")))
    results = client.post("/v1/batch", files=files).json()["results"]
    assert [each["image"] for each in results] == [name for _, (name, _, _) in files]
    assert [each["status"] for each in results] == 4 * [200] + [400] + 7 * [200]
    assert results[4]["inspection"] is None and "not an image" in results[4]["error"]
    for each in results[:4]:
        assert client.get(f"/v1/inspections/{each['inspection']['id']}").json() == each["inspection"]
