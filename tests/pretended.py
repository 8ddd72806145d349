"""A device that is not there, with numbers that are: its tensors live in memory, but say `pretended:0`.

As on a GPU, an operation that mixes its tensors with the CPU's fails, and so do `numpy()` and writing to a file. Unlike
torch's fake tensors its tensors have values, so that whole fits run on it and must give what the CPU gives.
"""

from types import SimpleNamespace

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretended"
aten = torch.ops.aten
COPIES = (aten._to_copy.default, aten.copy_.default)
# A GPU's tensor may be indexed by places that lie on the CPU; the reverse fails there, too.
INDEXED = (aten.index.Tensor, aten.index_put_.default, aten._index_put_impl_.default)


class Pretended(torch.Tensor):
    """Holds a tensor of the CPU; autograd works above it as above any device."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held):
        layout = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        with torch.inference_mode(False):  # of which a class like this one knows nothing
            return torch.Tensor._make_wrapper_subclass(cls, held.shape, **layout, device=torch.device(NAME, 0))

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return run(operation, args, kwargs or {})


class OnPretendedDevice(TorchDispatchMode):
    """While it is entered, tensors can be made on the device and moved to it."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        return run(operation, args, kwargs or {})


def run(operation, args, kwargs):
    if operation.overloadpacket is aten.to:  # which arrives whole in inference mode
        with OnPretendedDevice():
            return operation.decompose(*args, **kwargs)
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
    there = {id(each.held): each for each in tensors if isinstance(each, Pretended)}
    here = [each for each in tensors if not isinstance(each, Pretended) and each.ndim]  # a lone number may be anywhere
    indexed = operation in INDEXED and isinstance(args[0], Pretended)
    if there and here and operation not in COPIES and not indexed:
        raise RuntimeError(f"{operation}: some tensors are on {NAME}:0, others on the CPU")
    wanted = kwargs.get("device")
    goes_there = bool(there) if wanted is None else torch.device(wanted).type == NAME
    if operation is aten.copy_.default:
        goes_there = isinstance(args[0], Pretended)
    args, kwargs = tree_map(lambda each: each.held if isinstance(each, Pretended) else each, (args, kwargs))
    found = operation(*args, **(kwargs if wanted is None else kwargs | {"device": torch.device("cpu")}))

    def placed(each):
        if not goes_there or not isinstance(each, torch.Tensor):
            return each
        return there[id(each)] if id(each) in there else Pretended(each)

    return tree_map(placed, found)


def set_up():
    """Once a process: torch then knows one device of this name."""
    module = SimpleNamespace(is_available=lambda: True, device_count=lambda: 1, current_device=lambda: 0)
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = lambda seed: None
    module.is_initialized = lambda: True
    _setup_privateuseone_for_python_backend(NAME, backend_module=module)
