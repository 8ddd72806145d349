import concurrent.futures
import dataclasses
import io
import itertools
import socket
import statistics
import threading
import time

import httpx
import numpy as np
import pytest
from PIL import Image
from service.serving import image, png, serving

from nfad import Detector
from nfad.service.errors import ApiError
from nfad.service.queue import Queue
from nfad.service.uploads import Upload


class Slow:
    """A real model that predicts only while its door is open, and counts the images of each stream."""

    def __init__(self, model):
        self._model, self.door, self.streams = model, threading.Event(), []
        self.arrived = threading.Event()
        self.door.set()
        self.fails = False

    def shut(self):
        self.arrived.clear()
        self.door.clear()

    def __getattr__(self, name):
        return getattr(self._model, name)

    def predict_stream(self, images, skip=None, *, prefetch):
        self.arrived.set()
        self.door.wait(30)
        self.streams.append(0)
        for prediction in self._model.predict_stream(images, skip, prefetch=prefetch):
            if self.fails:
                raise RuntimeError("out of memory, say")
            self.streams[-1] += 1
            yield prediction


@pytest.fixture
def slowed(model, tmp_path):
    slow = Slow(Detector.load(model))
    with serving([model], tmp_path, load=lambda _: slow, places=4) as client:
        yield client, slow
        slow.door.set()


def post(client, seed=1):
    return httpx.post(client.base_url.join("/v1/inspect"), files=image(png(seed)), timeout=30)


def waiting(client, count):
    queue = client.service.models["part"].queue
    for _ in range(500):
        if queue.waiting == count:
            return
        time.sleep(0.01)
    raise AssertionError(f"{queue.waiting} wait instead of {count}")


def test_overload_is_refused_at_once_while_the_rest_is_served_together(slowed):
    client, slow = slowed
    slow.shut()
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        first = pool.submit(post, client)
        assert slow.arrived.wait(10)
        others = [pool.submit(post, client, seed) for seed in range(4)]
        waiting(client, 4)
        started = time.perf_counter()
        refused = [post(client) for _ in range(5)]
        seconds = time.perf_counter() - started
        slow.door.set()
        served = [future.result() for future in (first, *others)]
    assert all(answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert seconds < 5 and "waiting already" in refused[0].json()["error"]
    assert [answer.status_code for answer in served] == 5 * [200]
    assert slow.streams == [5]
    assert post(client).status_code == 200
    assert 'nfad_refused_total{status="429"} 5.0' in client.get("/metrics").text


def test_the_same_image_gets_the_same_answer_alone_and_in_a_batch(slowed):
    client, slow = slowed
    alone = [post(client, seed).json()["score"] for seed in range(4)]
    slow.shut()
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        pool.submit(post, client)
        assert slow.arrived.wait(10)
        together = []
        for seed in range(4):
            together.append(pool.submit(post, client, seed))
            waiting(client, seed + 1)
        slow.door.set()
        assert [future.result().json()["score"] for future in together] == pytest.approx(alone, rel=1e-4)


def test_a_client_that_hangs_up_is_taken_out_of_the_line(slowed):
    client, slow = slowed
    slow.shut()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(post, client)
        assert slow.arrived.wait(10)
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
        slow.door.set()
        assert first.result().status_code == last.result().status_code == 200
    assert sum(slow.streams) == 2
    assert len(client.get("/v1/inspections").json()["inspections"]) == 2


def test_a_failing_model_answers_500_without_details_and_goes_on(slowed, caplog):
    client, slow = slowed
    slow.fails = True
    answer = post(client)
    assert answer.status_code == 500 and "log" in answer.json()["error"] and "memory" not in answer.text
    assert "out of memory, say" in caplog.text
    slow.fails = False
    assert post(client).status_code == 200


class Alone:
    """A queue by itself; `kept` has its results, and answers are the images' names."""

    def __init__(self, folder, current, batch=4):
        self.folder, self.kept = folder, []
        self.queue = Queue("alone", current, self.keep, 100, batch)

    def keep(self, results):
        self.kept += results
        return [each.ticket.upload.image for each in results]

    def put(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return self.queue.put(Upload(path, name, len(content), ""))


def test_another_rate_holds_from_the_next_image_on_and_none_is_lost(model, tmp_path):
    detector = Detector.load(model)
    models = [detector.at_rate(rate) for rate in (0.2, 0.4)]
    asked = itertools.count()
    alone = Alone(tmp_path, lambda: models[next(asked) > 5])
    tickets = [alone.put(f"{seed}.png", png(seed)) for seed in range(12)]
    assert [ticket.answer.result(30) for ticket in tickets] == [f"{seed}.png" for seed in range(12)]
    rates = [each.model.false_alarm_rate for each in alone.kept]
    assert rates == sorted(rates) and len(set(rates)) == 2
    for each in alone.kept:
        assert each.prediction.threshold == each.model.threshold
        assert each.prediction.score == pytest.approx(detector.predict(each.ticket.upload.path).score, rel=1e-4)
    alone.queue.close()
    assert not alone.queue.alive


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize(("bad", "status"), [((0,), 500), ((3, 7), 500), ((3, 4), 503)])
def test_a_photo_that_the_model_fails_on_costs_no_other_its_verdict(model, tmp_path, batch, bad, status):
    said = "[enforce fail at alloc] DefaultCPUAllocator: can't allocate memory" if status == 503 else "bad shape"
    detector = Detector.load(model)
    detector = dataclasses.replace(detector, config=dataclasses.replace(detector.config, batch=batch))
    spots = [np.asarray(Image.open(io.BytesIO(png(seed))))[:8, :8].tolist() for seed in bad]

    class Failing:
        def predict_stream(self, images, skip=None, *, prefetch):
            def broken():
                for photo in images:
                    if photo[:8, :8].tolist() in spots:
                        raise RuntimeError(said)
                    yield photo

            return detector.predict_stream(broken(), skip, prefetch=prefetch)

    alone, failing = Alone(tmp_path, lambda: failing), Failing()
    tickets = [alone.put(f"{seed}.png", png(seed)) for seed in range(9)]
    answers = [ticket.answer.exception(30) or ticket.answer.result() for ticket in tickets]
    statuses = {seed: answer.status for seed, answer in enumerate(answers) if isinstance(answer, ApiError)}
    assert statuses == dict.fromkeys(bad, status)
    alone.queue.close()
    kept = {each.ticket.upload.image: each.prediction.score for each in alone.kept}
    for seed in set(range(9)) - set(bad):
        assert kept[f"{seed}.png"] == pytest.approx(detector.predict(tmp_path / f"{seed}.png").score, rel=1e-4)


def test_a_photo_that_breaks_the_reader_is_answered(model, tmp_path, monkeypatch):
    monkeypatch.setattr("nfad.service.queue.load_part", lambda path: bytearray(1 << 60))  # a MemoryError
    detector = Detector.load(model)
    alone = Alone(tmp_path, lambda: detector)
    for seed in range(3):
        answer = alone.put(f"{seed}.png", png(seed)).answer.exception(30)
        assert isinstance(answer, ApiError) and answer.status == 503 and answer.retry_after
    alone.queue.close()


def test_a_bad_image_does_not_harm_its_neighbours(slowed):
    client, slow = slowed
    slow.shut()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        pool.submit(post, client)
        assert slow.arrived.wait(10)
        damaged = png(2, 200)[:3000]
        contents = [png(1), damaged, png(3)]
        address = client.base_url.join("/v1/inspect")
        answers = [pool.submit(httpx.post, address, files=image(content), timeout=30) for content in contents]
        waiting(client, 3)
        slow.door.set()
        assert [answer.result().status_code for answer in answers] == [200, 400, 200]


def test_a_batch_larger_than_the_queue_waits_for_its_places(slowed):
    client, _ = slowed
    files = [("image", (f"{i}.png", png(i), "image/png")) for i in range(12)]
    results = client.post("/v1/batch", files=files).json()["results"]
    assert [each["status"] for each in results] == 12 * [200]


def test_stopping_finishes_what_waits(model, tmp_path):
    slow = Slow(Detector.load(model))
    with serving([model], tmp_path, load=lambda _: slow) as client:
        slow.shut()
        pool = concurrent.futures.ThreadPoolExecutor(6)
        answers = [pool.submit(post, client, seed) for seed in range(6)]
        while len(list((tmp_path / "incoming").iterdir())) < 6:
            time.sleep(0.01)
        threading.Timer(0.3, slow.door.set).start()
    assert [answer.result().status_code for answer in answers] == 6 * [200]
    pool.shutdown()


def test_reading_stays_quick_under_load(slowed):
    client, _ = slowed
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
