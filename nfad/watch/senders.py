"""Receivers across a network: a webhook and an MQTT broker. Both get the same JSON; its id tells a repeat."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import queue
import ssl
import urllib.error
import urllib.request
from email.message import Message
from typing import IO, TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from nfad import __version__
from nfad.errors import NfadError
from nfad.watch.delivery import Refused

if TYPE_CHECKING:
    from paho.mqtt.client import Client
    from paho.mqtt.reasoncodes import ReasonCode

TIMEOUT = 10.0  # seconds until a receiver that says nothing counts as down
# The answers that blame the message: to repeat it would hold up all that follow. 401, 404 and the like blame the
# set-up, which someone will mend.
BLAMES_THE_MESSAGE = frozenset({400, 413, 415, 422})


class Webhook:
    """POSTs each record as JSON, with its id as `Idempotency-Key`; any answer of 2xx means that it was received.

    A user and password in the address become basic authentication.
    """

    def __init__(self, address: str, timeout: float = TIMEOUT) -> None:
        parts = _split(address, "http", "https")
        self.name = _public(parts)
        self._address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))
        self._timeout = timeout
        self._headers = {"Content-Type": "application/json", "User-Agent": f"nfad/{__version__}"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        self._opener = urllib.request.build_opener(_NoRedirect)

    def send(self, text: str, id: str) -> None:
        headers = self._headers | {"Idempotency-Key": id}
        request = urllib.request.Request(self._address, text.encode(), headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                answer.read(1 << 16)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in BLAMES_THE_MESSAGE:
                raise Refused(f"it answered {error.code} {error.reason}") from None
            raise NfadError(f"it answered {error.code} {error.reason}") from None
        except urllib.error.URLError as error:  # around what went wrong, which says it better
            raise NfadError(str(getattr(error.reason, "strerror", None) or error.reason)) from None
        except TimeoutError:
            raise NfadError(f"no answer within {self._timeout:g} s") from None

    def close(self) -> None:
        self._opener.close()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as a GET, without the record."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


class Mqtt:
    """Publishes each record to a topic with QoS 1: it is delivered when the broker has acknowledged it."""

    def __init__(self, address: str, timeout: float = TIMEOUT) -> None:
        if importlib.util.find_spec("paho") is None:
            raise NfadError("to publish to a broker, install what speaks MQTT: pip install 'nfad[mqtt]'")
        self._parts = _split(address, "mqtt", "mqtts")
        self.name = _public(self._parts)
        self.topic = unquote(self._parts.path.removeprefix("/"))
        if not self.topic or "+" in self.topic or "#" in self.topic:
            raise NfadError(f"{self.name} names no topic to publish to; write e.g. mqtt://broker:1883/line/3")
        self._timeout = timeout
        self._client: Client | None = None

    def send(self, text: str, id: str) -> None:
        client = self._client
        if client is None or not client.is_connected():
            self.close()
            client = self._connect()
        sent = client.publish(self.topic, text, qos=1)
        sent.wait_for_publish(self._timeout)
        if not sent.is_published():
            self.close()  # with what it still queues, which is in the ledger as well and would go out twice
            raise NfadError(f"no acknowledgement within {self._timeout:g} s")

    def close(self) -> None:
        if self._client is not None:
            self._client.disconnect()
            self._client.loop_stop()
            self._client = None

    def _connect(self) -> Client:
        """Connect and wait for the broker's word, so that a refused password is told as what it is."""
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        parts, secure = self._parts, self._parts.scheme == "mqtts"
        self._client = client = Client(CallbackAPIVersion.VERSION2, reconnect_on_failure=False)
        client.connect_timeout = self._timeout
        if parts.username is not None:
            client.username_pw_set(unquote(parts.username), unquote(parts.password or ""))
        if secure:
            client.tls_set_context(ssl.create_default_context())
        answers: queue.SimpleQueue[ReasonCode] = queue.SimpleQueue()
        client.on_connect = lambda _client, _data, _flags, reason, _properties: answers.put(reason)
        client.connect(parts.hostname or "", parts.port or (8883 if secure else 1883), keepalive=30)
        client.loop_start()
        try:
            reason = answers.get(timeout=self._timeout)
        except queue.Empty:
            raise NfadError(f"the broker said nothing within {self._timeout:g} s") from None
        if reason.is_failure:
            raise NfadError(f"the broker refused the connection: {reason}")
        return client


def _split(address: str, *schemes: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        if parts.scheme in schemes and parts.hostname and (parts.port is None or parts.port > 0):
            return parts
    except ValueError:
        pass
    raise NfadError(f"{address} is no address; write {' or '.join(f'{scheme}://host/…' for scheme in schemes)}")


def _public(parts: SplitResult) -> str:
    """The address without what may be secret. A query may be: two that differ get names that differ, no more."""
    query = "?" + hashlib.sha256(parts.query.encode()).hexdigest()[:8] if parts.query else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{query}"
