"""Pixels and networks, in order of flow: images → interventions → teacher, reference → maps."""
