"""Every product of a fleet fitted; one that fails is told of, and the others go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nfad.data.photos import images_of
from nfad.errors import NfadError
from nfad.fleet.cluster import MEMORY, Cluster, Told, placed
from nfad.fleet.memory import fit_memory, pixels_of
from nfad.fleet.products import Outcome, Product, Wish, work_on
from nfad.system.files import ready_folder
from nfad.system.progress import Progress
from nfad.vision.weights import UNTRAINED, local_file


def fit_fleet(
    products: Sequence[Product], wish: Wish, cluster: Cluster, told: Told | None = None
) -> Iterator[tuple[int, Outcome]]:
    """Each product's place in the list and outcome, in the order they end.

    Photos and `wish.out` must be found under the same path on every node; weights are brought to it.
    """
    ready_folder(wish.out)
    files = {product.config.weights: _file(product.config.weights) for product in products}
    weights = {name: cluster.place(file) for name, file in files.items()}
    items = [(product, wish, weights[product.config.weights]) for product in products]
    memory = [_memory(product, cluster.cpus) for product in products]
    for index, found in cluster.run(_fit, items, told, memory):
        yield index, found if isinstance(found, Outcome) else Outcome(products[index].name, error=str(found))


def _fit(product: Product, wish: Wish, weights: Any, progress: Progress | None) -> Outcome:
    try:
        return work_on(product, wish, placed(weights), progress)
    except NfadError as error:
        return Outcome(product.name, error=str(error))
    except Exception as error:  # whatever it is, it is this product's alone
        return Outcome(product.name, error=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")


def _memory(product: Product, threads: int) -> int:
    """Whatever is wrong with a product is told by its task, not here."""
    try:
        images = images_of([product.photos])
    except NfadError:
        return MEMORY
    return fit_memory(product.config, len(images), pixels_of(images), threads)


def _file(weights: str | None) -> Path | None:
    """The driver's own file; embedded weights are part of every node's installation, the hub's are fetched there."""
    return None if weights in (None, UNTRAINED) else local_file(weights)
