"""Inspection over HTTP: images in, verdicts out, every one kept; `docs/service.md` is the contract."""
