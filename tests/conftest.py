"""Shapes are checked in tests only: jaxtyping's hook wraps every function and record of nfad as it is imported."""

import torch
from hypothesis import settings
from jaxtyping import install_import_hook

# To Python's typing an int may stand for a float (PEP 484); beartype has to be told.
install_import_hook("nfad", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")

torch.set_num_threads(1)
settings.register_profile("quick", deadline=None, max_examples=30)
settings.load_profile("quick")
