import concurrent.futures
import dataclasses
import itertools
import socket
import statistics
import threading
import time

import httpx
import pytest
from nfad.judge import Judge, load_judge
from service.serving import image, png, serving

from nfad import Detector
from nfad.service.queue import Queue
from nfad.service.refusal import Refused
from nfad.service.uploads import Upload


class Gated:
    """A real detector that judges only while its door is open, and counts what it judges in one go."""

    def __init__(self, detector):
        self._detector, self.door, self.streams = detector, threading.Event(), []
        self.arrived = threading.Event()
        self.door.set()
        self.fails = False

    def shut(self):
        self.arrived.clear()
        self.door.clear()

    def __getattr__(self, name):
        return getattr(self._detector, name)

    def predict_stream(self, images, skip, *, ahead):
        self.arrived.set()
        self.door.wait(30)
        self.streams.append(0)
        for prediction in self._detector.predict_stream(images, skip, ahead=ahead):
            if self.fails:
                raise RuntimeError("out of memory, say")
            self.streams[-1] += 1
            yield prediction


def before(gate):
    """How to load a model that judges behind this gate."""
    return lambda path: dataclasses.replace(load_judge(path), engine=gate)


@pytest.fixture
def gated(model, tmp_path):
    judge = Gated(Detector.load(model))
    with serving([model], tmp_path, load=before(judge), places=4) as client:
        yield client, judge
        judge.door.set()


def post(client, seed=1):
    return httpx.post(client.base_url.join("/v1/inspect"), files=image(png(seed)), timeout=30)


def waiting(client, count):
    queue = client.service.models["part"].queue
    for _ in range(500):
        if queue.waiting == count:
            return
        time.sleep(0.01)
    raise AssertionError(f"{queue.waiting} wait instead of {count}")


def test_overload_is_refused_at_once_while_the_rest_is_served_together(gated):
    client, judge = gated
    judge.shut()
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        first = pool.submit(post, client)
        assert judge.arrived.wait(10)
        others = [pool.submit(post, client, seed) for seed in range(4)]
        waiting(client, 4)
        started = time.perf_counter()
        refused = [post(client) for _ in range(5)]
        seconds = time.perf_counter() - started
        judge.door.set()
        served = [future.result() for future in (first, *others)]
    assert all(answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert seconds < 5 and "waiting already" in refused[0].json()["error"]
    assert [answer.status_code for answer in served] == 5 * [200]
    assert judge.streams == [5]
    assert post(client).status_code == 200
    assert 'nfad_refused_total{status="429"} 5.0' in client.get("/metrics").text


def test_the_same_image_gets_the_same_answer_alone_and_in_a_batch(gated):
    client, judge = gated
    alone = [post(client, seed).json()["score"] for seed in range(4)]
    judge.shut()
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        pool.submit(post, client)
        assert judge.arrived.wait(10)
        together = []
        for seed in range(4):
            together.append(pool.submit(post, client, seed))
            waiting(client, seed + 1)
        judge.door.set()
        assert [future.result().json()["score"] for future in together] == pytest.approx(alone, rel=1e-4)


def test_a_client_that_hangs_up_is_taken_out_of_the_line(gated):
    client, judge = gated
    judge.shut()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(post, client)
        assert judge.arrived.wait(10)
        request = httpx.Request("POST", client.base_url.join("/v1/inspect"), files=image())
        headers = b"".join(b"%s: %s\r\n" % pair for pair in request.headers.raw)
        head = b"POST /v1/inspect HTTP/1.1\r\n" + headers + b"\r\n"
        with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
            connection.sendall(head + request.read())
            waiting(client, 1)
        ticket = client.service.models["part"].queue._waiting.queue[0]
        for _ in range(500):
            if ticket.answer.cancelled():
                break
            time.sleep(0.01)
        last = pool.submit(post, client)
        waiting(client, 2)
        judge.door.set()
        assert first.result().status_code == last.result().status_code == 200
    assert sum(judge.streams) == 2
    assert len(client.get("/v1/inspections").json()["inspections"]) == 2


def test_a_failing_judge_answers_500_without_details_and_goes_on(gated, caplog):
    client, judge = gated
    judge.fails = True
    answer = post(client)
    assert answer.status_code == 500 and "log" in answer.json()["error"] and "memory" not in answer.text
    assert "out of memory, say" in caplog.text
    judge.fails = False
    assert post(client).status_code == 200


class Line:
    """A queue by itself, whose judge and keeper the test plays."""

    def __init__(self, folder, engine, current=None, batch=4):
        self.folder, self.kept = folder, []
        self.judge = Judge(engine, "", batch, 0, {}, "", "")
        self.queue = Queue("line", current or (lambda: self.judge), self.keep, 100, batch)

    def keep(self, judged):
        self.kept += judged
        return [each.ticket.upload.file_name for each in judged]

    def put(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return self.queue.put(Upload(path, name, len(content), ""))


def test_another_rate_holds_from_the_next_image_on_and_none_is_lost(model, tmp_path):
    detector = Detector.load(model)
    judges = [Judge(detector.at_rate(rate), "", 4, 0, {}, "", "") for rate in (0.2, 0.4)]
    asked = itertools.count()
    line = Line(tmp_path, detector, lambda: judges[next(asked) > 5])
    tickets = [line.put(f"{seed}.png", png(seed)) for seed in range(12)]
    assert [ticket.answer.result(30) for ticket in tickets] == [f"{seed}.png" for seed in range(12)]
    rates = [each.judge.false_alarm_rate for each in line.kept]
    assert rates == sorted(rates) and len(set(rates)) == 2
    for each in line.kept:
        assert each.prediction.threshold == each.judge.threshold
        assert each.prediction.score == pytest.approx(detector.predict(each.ticket.upload.path).score, rel=1e-4)
    line.queue.close()
    assert not line.queue.alive


@pytest.mark.parametrize("after", [0, 3])
def test_a_judge_that_fails_half_way_leaves_no_client_waiting(model, tmp_path, after):
    class Failing:
        def __init__(self, detector):
            self._detector, self.failed = detector, False

        def predict_stream(self, images, skip, *, ahead):
            judged = self._detector.predict_stream(images, skip, ahead=False)
            for index, prediction in enumerate(judged):
                if index == after and not self.failed:
                    self.failed = True
                    raise RuntimeError("out of memory, say")
                yield prediction

    line = Line(tmp_path, Failing(Detector.load(model)))
    tickets = [line.put(f"{seed}.png", png(seed)) for seed in range(8)]
    answers = [ticket.answer.exception(30) or ticket.answer.result() for ticket in tickets]
    failed = [isinstance(answer, Refused) and answer.status == 500 for answer in answers]
    assert failed[:after] == after * [False] and sum(failed) == 1 and failed[after]
    line.queue.close()


def test_a_photo_that_breaks_the_reader_is_answered(model, tmp_path, monkeypatch):
    monkeypatch.setattr("nfad.service.queue.load_part", lambda path: bytearray(1 << 60))  # a MemoryError
    line = Line(tmp_path, Detector.load(model))
    for seed in range(3):
        answer = line.put(f"{seed}.png", png(seed)).answer.exception(30)
        assert isinstance(answer, Refused) and answer.status == 500
    line.queue.close()


def test_a_bad_image_does_not_harm_its_neighbours(gated):
    client, judge = gated
    judge.shut()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        pool.submit(post, client)
        assert judge.arrived.wait(10)
        damaged = png(2, 200)[:3000]
        contents = [png(1), damaged, png(3)]
        address = client.base_url.join("/v1/inspect")
        answers = [pool.submit(httpx.post, address, files=image(content), timeout=30) for content in contents]
        waiting(client, 3)
        judge.door.set()
        assert [answer.result().status_code for answer in answers] == [200, 400, 200]


def test_a_batch_larger_than_the_queue_waits_for_its_places(gated):
    client, _ = gated
    files = [("image", (f"{i}.png", png(i), "image/png")) for i in range(12)]
    results = client.post("/v1/batch", files=files).json()["results"]
    assert [each["status"] for each in results] == 12 * [200]


def test_stopping_finishes_what_waits(model, tmp_path):
    judge = Gated(Detector.load(model))
    with serving([model], tmp_path, load=before(judge)) as client:
        judge.shut()
        pool = concurrent.futures.ThreadPoolExecutor(6)
        answers = [pool.submit(post, client, seed) for seed in range(6)]
        while len(list((tmp_path / "incoming").iterdir())) < 6:
            time.sleep(0.01)
        threading.Timer(0.3, judge.door.set).start()
    assert [answer.result().status_code for answer in answers] == 6 * [200]
    pool.shutdown()


def test_reading_stays_quick_under_load(gated):
    client, _ = gated
    stop = threading.Event()

    def hammer():
        while not stop.is_set():
            post(client)

    threads = [threading.Thread(target=hammer) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        times = []
        for _ in range(10):
            started = time.perf_counter()
            assert client.get("/v1/inspections", params={"limit": 5}).status_code == 200
            times.append(time.perf_counter() - started)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert statistics.median(times) < 2
