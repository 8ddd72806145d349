"""The C++ example, compiled here and run on a small graph that keeps the export's contract."""

import importlib.util
import io
import json
import random
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from parts import part, parts, tiny
from PIL import Image

from nfad.deploy.seal import sealed
from nfad.system.files import sha256_of
from nfad.system.platform import ready_for_openvino

SOURCE = Path(__file__).parents[2] / "examples" / "cpp"


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    missing = [tool for tool in ("cmake", "c++") if shutil.which(tool) is None]
    if missing or importlib.util.find_spec("openvino") is None:
        pytest.skip(f"to compile C++, install {', '.join([*missing, 'openvino (pip)'])}")
    ready_for_openvino()  # its cap also holds for the program, which inherits the environment
    from openvino.utils import get_cmake_path

    build = tmp_path_factory.mktemp("build")
    flags = [f"-DOpenVINO_DIR={get_cmake_path()}", "-DCMAKE_CXX_FLAGS=-O0 -Wall -Wextra -Werror"]
    for command in (["cmake", "-S", SOURCE, "-B", build, *flags], ["cmake", "--build", build]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def run(*arguments):
        return subprocess.run([build / "judge", *map(str, arguments)], capture_output=True, text=True)

    return run


@pytest.fixture(scope="module")
def exported(judge, tmp_path_factory):
    return contract(tmp_path_factory.mktemp("exported"))


def contract(folder, strangeness=False, broken=""):
    """score is the mean of the reds, unfiltered_score that of the blues: any mistake in the pixels' order shows.

    `strangeness`, if wanted, is the mean of the greens over 100; the score named `broken` is no number.
    """
    nodes = [
        helper.make_node("Cast", ["pixels"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["floats"], ["means"], axes=[1, 2], keepdims=0),
        helper.make_node("Gather", ["means", "red"], ["reds"], axis=1),
        helper.make_node("Gather", ["means", "blue"], ["blues"], axis=1),
        helper.make_node("Gather", ["means", "green"], ["greens"], axis=1),
        helper.make_node("ReduceMean", ["floats"], ["map"], axes=[3], keepdims=0),
    ]
    outputs = [
        helper.make_tensor_value_info("score", TensorProto.FLOAT, ["n"]),
        helper.make_tensor_value_info("unfiltered_score", TensorProto.FLOAT, ["n"]),
        helper.make_tensor_value_info("map", TensorProto.FLOAT, ["n", "h", "w"]),
    ]
    for means, name in (("reds", "score"), ("blues", "unfiltered_score")):
        if name == broken:
            nodes += [helper.make_node("Neg", [means], ["negative"]), helper.make_node("Sqrt", ["negative"], [name])]
        else:
            nodes.append(helper.make_node("Identity", [means], [name]))
    if strangeness:
        nodes.append(helper.make_node("Div", ["greens", "hundred"], ["strangeness"]))
        outputs.append(helper.make_tensor_value_info("strangeness", TensorProto.FLOAT, ["n"]))
    channels = [helper.make_tensor(name, TensorProto.INT64, [], [i]) for i, name in enumerate(("red", "green", "blue"))]
    graph = helper.make_graph(
        nodes,
        "contract",
        [helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["n", "h", "w", 3])],
        outputs,
        [*channels, helper.make_tensor("hundred", TensorProto.FLOAT, [], [100.0])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    import openvino

    converted = openvino.convert_model(io.BytesIO(model.SerializeToString()))
    openvino.save_model(converted, folder / "model.xml", compress_to_fp16=False)
    return folder


@pytest.fixture
def photo(tmp_path):
    pixels = part(3, 48)[:, :31]  # neither square nor even
    Image.fromarray(pixels).save(tmp_path / "a.ppm")
    return tmp_path / "a.ppm", pixels.reshape(-1, 3).astype(np.float64).mean(axis=0)


ANY = {"format": 6, "narrowest": 0.0, "widest": 1e6}


def seal(folder, metadata, key=None):
    """model.json as an export writes it."""
    files = {name: sha256_of(folder / name) for name in ("model.xml", "model.bin")}
    text = json.dumps(sealed(metadata | {"files": files}, key), indent=2, ensure_ascii=False)
    (folder / "model.json").write_text(text + "\n", encoding="utf-8")
    return text


def said(done):
    number = r"(-?[\d.e+-]+|-?nan|-?inf)"
    found = re.fullmatch(rf"([\w ]+)  score {number}  threshold {number}  unfiltered score {number}\n", done.stdout)
    assert found, done.stderr
    assert done.returncode == (3 if found[1] == "not judged" else 0)
    return found[1], *map(float, found.groups()[1:])


@pytest.mark.parametrize("above", [False, True])
def test_score_and_verdict_are_those_of_the_graph(judge, exported, photo, above):
    path, (red, _, blue) = photo
    threshold = red - 0.25 if above else red + 0.25
    metadata = ANY | {"unfiltered_threshold": 1.5, "threshold": threshold}
    seal(exported, metadata)
    verdict, score, used, unfiltered = said(judge(exported, path))
    assert verdict == ("anomalous" if above else "normal")
    assert [score, used, unfiltered] == pytest.approx([red, threshold, blue], rel=1e-4)  # six digits are printed


def test_a_comment_in_the_image_and_any_number_are_read(judge, exported, photo):
    path, (red, _, _) = photo
    seal(exported, {"threshold": -1e-07, "format": 5, "narrowest": 0, "widest": 9})
    path.write_bytes(path.read_bytes().replace(b"P6\n", b"P6\n# by a camera\n", 1))
    verdict, score, threshold, _ = said(judge(exported, path))
    assert (verdict, threshold) == ("anomalous", -1e-07) and score == pytest.approx(red, rel=1e-4)


@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize(
    ("green", "highest", "verdict"),
    [
        (99, 99, "judged"),
        (100, 99, "judged"),
        (101, 50, "not judged"),
        (150, 49.9, "judged"),
        (151, 49.9, "not judged"),
    ],
)
def test_what_the_fit_does_not_span_is_not_judged(judge, tmp_path, above, green, highest, verdict):
    """The rule is strangeness > 1, or > 1.5 where the score is above every normal's, as in nfad."""
    contract(tmp_path, strangeness=True)
    metadata = ANY | {"threshold": 49.5 if above else 50.5, "highest": highest}
    seal(tmp_path, metadata)
    Image.fromarray(np.full((8, 6, 3), (50, green, 7), np.uint8)).save(tmp_path / "a.ppm")
    told, score, _, unfiltered = said(judge(tmp_path, tmp_path / "a.ppm"))
    wanted = ("anomalous" if above else "normal") if verdict == "judged" else "not judged"
    assert (told, score, unfiltered) == (wanted, 50, 7)


@pytest.mark.parametrize(("narrowest", "verdict"), [(0.74, "normal"), (0.76, "not judged")])
def test_a_photo_of_another_shape_is_not_judged(judge, tmp_path, narrowest, verdict):
    """6 pixels wide and 8 high."""
    contract(tmp_path, strangeness=True)
    seal(tmp_path, ANY | {"threshold": 99, "highest": 99, "narrowest": narrowest})
    Image.fromarray(np.full((8, 6, 3), (50, 7, 7), np.uint8)).save(tmp_path / "a.ppm")
    assert said(judge(tmp_path, tmp_path / "a.ppm"))[0] == verdict


@pytest.mark.parametrize("broken", ["score", "unfiltered_score"])
def test_a_score_that_is_no_number_is_never_normal(judge, tmp_path, photo, broken):
    contract(tmp_path, broken=broken)
    seal(tmp_path, ANY | {"threshold": 1e6})
    assert said(judge(tmp_path, photo[0]))[0] == "not judged"


@pytest.mark.slow
@pytest.mark.parametrize("localization", ["detection", "global"])
def test_a_real_export_is_judged_as_python_judges_it(judge, localization, tmp_path):
    from nfad import Detector
    from nfad.deploy.export import Options, export
    from nfad.deploy.runtime import Runtime

    detector = Detector.fit(parts(16), tiny(false_alarm_rate=0.2, localization=localization))
    detector.save(tmp_path / "part.nfad")
    photos = [tmp_path / f"{i}.ppm" for i in range(4)]
    for i, path in enumerate(photos):
        Image.fromarray(part(i, 90, defect=i % 2 == 1)[:, :75]).save(path)
    export(tmp_path / "part.nfad", tmp_path / "exported", Options(backend="openvino"), photos[::2])
    runtime = Runtime.load(tmp_path / "exported")
    for path in photos:
        prediction = runtime.predict(path)
        verdict, score, threshold, unfiltered = said(judge(tmp_path / "exported", path))
        assert verdict == prediction.verdict
        wanted = [prediction.score, prediction.threshold, prediction.unfiltered_score]
        assert [score, threshold, unfiltered] == pytest.approx(wanted, rel=1e-4)


ODD = {"name": 'Flasche “ß” 🍾\n\t"\\/\x7f', "ü": [[], {}, [1.5e-07, -0.0, True, None]], "é": {"b": 1, "a": {"z": ""}}}


def test_a_changed_folder_is_refused(judge, exported, photo, tmp_path):
    """Any letter of any of its files, as nfad does."""
    folder, chance = tmp_path / "copy", random.Random(0)
    shutil.copytree(exported, folder)
    text = seal(folder, ANY | {"threshold": 1} | ODD)
    said(judge(folder, photo[0]))
    for changed in (
        text.replace('"threshold": 1', '"threshold": 9'),
        text.replace("Flasche", "flasche"),
        re.sub('"files": {[^}]*}', '"files": {}', text),
        text.replace('"format": 6,', '"format": 6, "format": 6,'),
        text + "{}",
    ):
        assert changed != text
        (folder / "model.json").write_text(changed, encoding="utf-8")
        done = judge(folder, photo[0])
        assert done.returncode == 2 and "model.json was" in done.stderr and done.stderr.count("\n") == 1
    (folder / "model.json").write_text(text, encoding="utf-8")
    for name in ("model.bin", "model.xml"):
        whole = (folder / name).read_bytes()
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        (folder / name).write_bytes(damaged)
        done = judge(folder, photo[0])
        assert done.returncode == 2 and f"{name} was changed after the export (its checksum differs)" in done.stderr
        (folder / name).write_bytes(whole)
    said(judge(folder, photo[0]))


@pytest.mark.parametrize("length", [16, 64, 65])
def test_with_a_key_only_what_was_signed_with_it_is_judged(judge, exported, photo, tmp_path, length):
    folder, mine, other = tmp_path / "copy", tmp_path / "mine.key", tmp_path / "other.key"
    shutil.copytree(exported, folder)
    mine.write_bytes(bytes(range(length)))
    other.write_bytes(bytes(length))
    seal(folder, ANY | {"threshold": 1} | ODD, mine.read_bytes())
    said(judge(folder, photo[0]))
    said(judge(folder, photo[0], mine))
    assert "was not signed with this key" in judge(folder, photo[0], other).stderr
    seal(folder, ANY | {"threshold": 1})
    assert "was not signed with this key" in judge(folder, photo[0], mine).stderr


def test_bad_input_is_one_sentence(judge, exported, photo, tmp_path):
    path, _ = photo
    seal(exported, ANY | {"threshold": 1})
    (tmp_path / "cut.ppm").write_bytes(path.read_bytes()[:-1])
    Image.fromarray(part(1)).save(tmp_path / "a.png")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare/model.xml").touch()
    damaged = {
        "older": '{"format": 2, "threshold": 1}',
        "torn": '{"format": 6, "threshold": 1',
        "unsealed": '{"format": 6, "threshold": 1, "files": {}}',
    }
    for name, metadata in damaged.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.xml").touch()
        (tmp_path / name / "model.json").write_text(metadata)
    for name, metadata in {"without": {"format": 6}, "absurd": {"format": 6, "threshold": 1e9}}.items():
        shutil.copytree(exported, tmp_path / name)
        seal(tmp_path / name, metadata)
    (tmp_path / "short.key").write_bytes(b"short")
    for arguments, sentence in {
        (): "usage",
        (exported, tmp_path / "absent.ppm"): "cannot be opened",
        (exported, tmp_path / "cut.ppm"): "is cut short",
        (exported, tmp_path / "a.png"): "is not a binary PPM",
        (tmp_path / "empty", path): "export with --to openvino",
        (tmp_path / "bare", path): "names no format",
        (tmp_path / "older", path): "has another format than 5 or 6; export the model again",
        (tmp_path / "torn", path): "was not written by `nfad export`, or is incomplete",
        (tmp_path / "unsealed", path): "its seal differs",
        (exported, path, tmp_path / "short.key"): "fewer than 16 bytes",
        (exported, path, tmp_path / "absent.key"): "cannot be read",
        (tmp_path / "without", path): "names no threshold",
        (tmp_path / "absurd", path): "has a threshold that no model has",
    }.items():
        done = judge(*arguments)
        assert done.returncode == 2 and sentence in done.stderr and done.stderr.count("\n") == 1
