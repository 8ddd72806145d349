"""A labelled set in two lights, and a stress run: what the pages are made of."""

from evaluation.conftest import in_two_lights, refusing
from stress.conftest import chosen, detector, few_axes, found, model, normals, odd, shipped

__all__ = ["chosen", "detector", "few_axes", "found", "in_two_lights", "model", "normals", "odd", "refusing", "shipped"]
