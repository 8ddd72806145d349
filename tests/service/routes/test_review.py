import io
import zipfile

from service.serving import image, png, serving


def test_review_measures_and_exports(model, tmp_path):
    with serving([model], tmp_path / "data") as client:
        for seed in range(12):
            defect = seed % 2 == 1
            id = client.post("/v1/inspect", files=image(png(100 + seed, defect=defect), "../../x.png")).json()["id"]
            client.put(f"/v1/inspections/{id}/review", json={"verdict": "bad" if defect else "good"})
        report = client.get("/v1/review").json()
        assert report["counts"] == {"inspections": 12, "reviewed": 12, "good": 6, "bad": 6, "unsure": 0}
        table = report["table"]
        assert report["recall"]["value"] == table["rejected_bad"] / 6
        assert report["recall"]["low"] <= report["recall"]["value"] <= report["recall"]["high"]
        if report["suggestion"]:  # what is suggested can be set, and does what it says
            rate = report["suggestion"]["rate"]
            assert (
                client.get("/v1/models/part/what-if", params={"rate": rate}).json()["threshold"]
                == (report["suggestion"]["threshold"])
            )
        with zipfile.ZipFile(io.BytesIO(client.get("/v1/review/export").content)) as archive:
            names = archive.namelist()
            assert all(name.startswith("part/") and ".." not in name for name in names)
            assert len([name for name in names if name.startswith("part/bad/")]) == 6
