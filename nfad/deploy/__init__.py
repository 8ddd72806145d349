"""A fitted detector as one graph that runs without torch: export it, prove it equal, run it on a line PC."""

from nfad.deploy.runtime import Runtime

__all__ = ["Runtime"]
