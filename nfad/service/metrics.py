"""Numbers for Prometheus, in a registry of their own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from nfad import __version__

BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Metrics:
    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        here = self._registry = CollectorRegistry()
        self.inspections = Counter("nfad_inspections", "Inspections kept.", ["model", "verdict"], registry=here)
        self.refused = Counter(
            "nfad_refused", "Requests and images refused, by HTTP status.", ["status"], registry=here
        )
        self.seconds = Histogram(
            "nfad_inspection_seconds", "From the whole upload to the answer.", ["model"], buckets=BUCKETS, registry=here
        )
        self.waiting = Gauge("nfad_queue_waiting", "Images waiting for a model.", ["model"], registry=here)
        self.drift = Gauge("nfad_drift", "1 while there is a drift alarm, else 0.", ["model"], registry=here)
        self.frozen = Gauge(
            "nfad_camera_frozen", "1 while the photos show the very same frame, else 0.", ["model"], registry=here
        )
        self.camera = Gauge("nfad_camera", "1 while the camera is in that state.", ["model", "state"], registry=here)
        self.free = Gauge("nfad_disk_free_bytes", "Free on the disk of the pictures.", registry=here)
        self.least_free = Gauge("nfad_disk_least_free_bytes", "Below it images are refused.", registry=here)
        self.places = Gauge("nfad_queue_places", "Images that may wait for a model.", ["model"], registry=here)
        self.database = Gauge("nfad_database_up", "1 while the database answers, else 0.", registry=here)
        self.commit = Histogram(
            "nfad_commit_seconds",
            "To keep inspections: pictures synced, rows committed.",
            buckets=BUCKETS,
            registry=here,
        )
        Gauge("nfad_info", "Always 1; tells the version.", ["version"], registry=here).labels(__version__).set(1)

    def text(self) -> bytes:
        return generate_latest(self._registry)
