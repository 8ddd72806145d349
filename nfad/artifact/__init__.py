"""A detector on disk, and what older versions wrote."""
