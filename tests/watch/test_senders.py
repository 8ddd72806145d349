import base64
import json
import shutil
import socket
import subprocess
import time

import pytest

from nfad.errors import NfadError
from nfad.watch.delivery import Refused
from nfad.watch.senders import Mqtt, Webhook


@pytest.fixture
def webhook(receiver):
    made = Webhook(f"http://line:3%20secret@{receiver.address}/parts?token=t0p")
    yield made
    made.close()


def test_a_record_arrives_as_json_with_its_id_and_password(webhook, receiver):
    webhook.send('{"image": "ä.png"}', "abc-1")
    assert receiver.accepted == [{"image": "ä.png"}] and receiver.ids == ["abc-1"]
    [headers] = receiver.headers
    assert headers["Content-Type"] == "application/json"
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")) == b"line:3 secret"


def test_no_secret_is_in_the_name_and_two_queries_are_two_receivers(webhook, receiver):
    assert "secret" not in webhook.name and "t0p" not in webhook.name and receiver.address in webhook.name
    assert webhook.name != Webhook(f"http://{receiver.address}/parts?token=other").name
    assert webhook.name == Webhook(f"http://other:user@{receiver.address}/parts?token=t0p").name


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_an_answer_that_blames_the_message_is_final(webhook, receiver, status):
    receiver.status = status
    with pytest.raises(Refused, match=str(status)):
        webhook.send("{}", "k")


@pytest.mark.parametrize("status", [301, 302, 401, 404, 409, 429, 500, 503])
def test_any_other_answer_is_for_later_and_a_redirect_is_no_delivery(webhook, receiver, status):
    receiver.status, receiver.location = status, f"http://{receiver.address}/elsewhere"
    with pytest.raises(NfadError, match=str(status)):
        webhook.send("{}", "k")
    assert receiver.accepted == []


def test_a_receiver_that_says_nothing_counts_as_down():
    with socket.create_server(("127.0.0.1", 0)) as mute:
        started = time.monotonic()
        with pytest.raises(NfadError, match=r"no answer within 0\.2 s"):
            Webhook(f"http://127.0.0.1:{mute.getsockname()[1]}/", timeout=0.2).send("{}", "k")
        assert time.monotonic() - started < 5


def test_a_receiver_that_is_down_is_told_of_in_plain_words():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(NfadError, match="^Connection refused$"):
        Webhook(f"http://127.0.0.1:{port}/").send("{}", "k")
    with pytest.raises(NfadError, match=r"^[^<>]+$"):
        Webhook("http://nobody.invalid/").send("{}", "k")


@pytest.mark.parametrize("address", ["http://", "http://host:port/", "https:///path", "http://[::1/"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(NfadError, match="is no address"):
        Webhook(address)


# A broker of flesh and blood: mosquitto, where it is installed.
MOSQUITTO = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/sbin")


class Broker:
    def __init__(self, folder, port):
        self.port, self.process = port, None
        self.file = folder / "mosquitto.conf"
        passwords = folder / "passwords"
        passwords.write_text("line:3 secret\n")
        if shutil.which("mosquitto_passwd"):
            subprocess.run(["mosquitto_passwd", "-U", str(passwords)], check=True)
        passwords.chmod(0o644)
        self.file.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous false\npassword_file {passwords}\nuser root\n"
        )

    def start(self):
        self.process = subprocess.Popen([MOSQUITTO, "-c", str(self.file)], stderr=subprocess.DEVNULL)
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError("the broker did not start")

    def stop(self):
        self.process.terminate()
        self.process.wait(10)


@pytest.fixture
def broker(tmp_path):
    pytest.importorskip("paho.mqtt", reason="paho-mqtt is not installed: pip install 'nfad[mqtt]'")
    if MOSQUITTO is None:
        pytest.skip("no MQTT broker here: install mosquitto")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    made = Broker(tmp_path, port)
    made.start()
    yield made
    made.stop()


def subscriber(broker, topic, heard):
    from paho.mqtt import client as paho

    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.username_pw_set("line", "3 secret")
    ready = []
    client.on_subscribe = lambda *_: ready.append(True)
    client.on_message = lambda _client, _data, message: heard.append((message.topic, message.qos, message.payload))
    client.connect("127.0.0.1", broker.port)
    client.subscribe(topic, qos=1)
    client.loop_start()
    assert until(lambda: ready)
    return client


def until(happens, seconds=5):
    end = time.monotonic() + seconds
    while not happens() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(happens())


def test_a_part_is_published_with_qos_1_and_again_after_the_broker_was_down(broker):
    heard = []
    mqtt = Mqtt(f"mqtt://line:3%20secret@127.0.0.1:{broker.port}/plant/line%203", timeout=2)
    assert "secret" not in mqtt.name
    listener = subscriber(broker, "plant/#", heard)
    mqtt.send(json.dumps({"id": 1}), "k")
    mqtt.send(json.dumps({"id": 2}), "k")
    assert until(lambda: len(heard) == 2)
    assert heard == [("plant/line 3", 1, b'{"id": 1}'), ("plant/line 3", 1, b'{"id": 2}')]
    listener.disconnect()
    listener.loop_stop()
    broker.stop()
    with pytest.raises((NfadError, OSError, RuntimeError)):
        mqtt.send(json.dumps({"id": 3}), "k")
    with pytest.raises(ConnectionRefusedError):
        mqtt.send(json.dumps({"id": 3}), "k")
    broker.start()
    listener = subscriber(broker, "plant/#", heard)
    mqtt.send(json.dumps({"id": 3}), "k")
    assert until(lambda: len(heard) == 3) and heard[2][2] == b'{"id": 3}'
    mqtt.close()
    listener.disconnect()
    listener.loop_stop()


def test_a_wrong_password_is_told_as_such(broker):
    mqtt = Mqtt(f"mqtt://line:wrong@127.0.0.1:{broker.port}/a", timeout=2)
    with pytest.raises(NfadError, match=r"refused the connection: .*(Not authorized|Bad user)"):
        mqtt.send("{}", "k")
    mqtt.close()


def test_a_broker_that_says_nothing_counts_as_down():
    pytest.importorskip("paho.mqtt", reason="paho-mqtt is not installed: pip install 'nfad[mqtt]'")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mqtt = Mqtt(f"mqtt://127.0.0.1:{mute.getsockname()[1]}/a", timeout=0.3)
        with pytest.raises(NfadError, match="said nothing within"):
            mqtt.send("{}", "k")
        mqtt.close()


@pytest.mark.parametrize("address", ["mqtt://broker", "mqtt://broker/", "mqtt://broker/a/%23", "mqtt://broker/+/a"])
def test_a_topic_to_publish_to_is_needed(address):
    pytest.importorskip("paho.mqtt", reason="paho-mqtt is not installed: pip install 'nfad[mqtt]'")
    with pytest.raises(NfadError, match="names no topic"):
        Mqtt(address)
