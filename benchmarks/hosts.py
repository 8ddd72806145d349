"""What the filter costs a host: feature passes to fit it, and inference beside the bare host's, in one run.

    python benchmarks/hosts.py DATA [--repeats 15]

Hosts are trained for two steps only: what they have learned does not change what they cost.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import torch
from costs import ratio

from nfad import Config
from nfad.fitting.nuisance import families_of
from nfad.paper.plugins import HOSTS, fit_host, worn
from nfad.vision.images import find_images, load_part, to_view

RESULTS = Path(__file__).parent / "results" / "hosts.md"


class Counting:
    """A host that counts the images whose features it is asked for."""

    def __init__(self, host) -> None:
        self._host, self.unit, self.passes = host, host.unit, 0

    def __getattr__(self, name):
        return getattr(self._host, name)

    def features(self, images):
        self.passes += len(images)
        return self._host.features(images)

    def features_and_prior(self, images):
        together = getattr(self._host, "features_and_prior", None)
        if together is None:
            return self.features(images), None
        self.passes += len(images)
        return together(images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    config = Config.preset("embedded-fast")
    paths = list(find_images(options.data / "mvtec_256" / "bottle" / "train" / "good"))[:40]
    normals = torch.stack([to_view(load_part(path), config.size, None)[0] for path in paths])
    interventions = sum(len(family) for family in families_of(config).values())
    lines = [
        f"Embedded CNN at {config.size}², one image at a time, d = 16. Fitting looks at {config.pairs} images, "
        f"each as it is and under {interventions} interventions.",
        "",
        "| host | filtered / bare inference, median | lowest–highest | passes to fit / (interventions + 1) |",
        "| --- | --- | --- | --- |",
    ]
    for name, title in HOSTS.items():
        host = fit_host(name, normals, config, steps=2)
        counted = Counting(host)
        filtered = worn(counted, 16, normals, config).filter.wrap(host)
        passes = (counted.passes - 1) / (config.pairs * (interventions + 1))  # one image told the channels
        median, low, high = ratio(
            partial(_ten, filtered, normals[:1]), partial(_ten, host, normals[:1]), options.repeats
        )
        lines.append(f"| {title} | {median:.3f} | {low:.3f}–{high:.3f} | {passes:.2f} |")
        print(lines[-1], flush=True)
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _ten(host, image) -> None:
    for _ in range(10):
        host.score(image)


if __name__ == "__main__":
    main()
