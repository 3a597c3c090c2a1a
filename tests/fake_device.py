"""A device that is not there: tensors that say they are on it, computed on the CPU, and that refuse what it refuses.

A tensor of this device wraps one of the CPU. Inside `fake_device` every operation is checked: tensors of the device
meet only their like (and numbers, and indices of the CPU, as on a GPU), none is of float64, which MPS does not have,
and every wait for a value is recorded with the line of the package that asked for it.
"""

import traceback
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

DEVICE = torch.device("meta")
PACKAGE = str(Path(__file__).parents[1] / "src")
aten = torch.ops.aten
SYNCS = {
    aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default, aten.equal.default,
    aten.unique_dim.default, aten._unique2.default,
}  # fmt: skip
"""What waits for the device: the shape of the result, or what Python does next, depends on values."""


class OnDevice(torch.Tensor):
    """A tensor of the device around one of the CPU, `value`."""

    @staticmethod
    def __new__(cls, value):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            value.size(),
            strides=value.stride(),
            storage_offset=value.storage_offset(),
            dtype=value.dtype,
            device=DEVICE,
            requires_grad=False,
        )

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return f"OnDevice({self.value!r})"

    def tolist(self):
        FakeDevice.current._sync("tolist")
        return self.value.tolist()

    def item(self):
        FakeDevice.current._sync("item")
        return self.value.item()

    def numpy(self):
        raise TypeError("numpy reads no tensor of a device")

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return FakeDevice.current.run(func, args, kwargs or {})


def _is_written(argument):
    return argument.alias_info is not None and argument.alias_info.is_write


class FakeDevice(TorchDispatchMode):
    """Runs operations of the device on the CPU, after checking them.

    `syncs` are what waited for the device, as (place in the package, what); with `most`, activations of more elements
    do not fit, and `refused` says how often that was so.
    """

    current = None

    def __init__(self, most=None):
        super().__init__()
        self.syncs = []
        self.operations = self.refused = 0
        self.most = most

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self.run(func, args, kwargs or {})

    def run(self, func, args, kwargs):
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            with self:  # in inference mode it comes here before it is taken apart
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        given = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)]
        here = [value for value in given if isinstance(value, OnDevice)]
        target = kwargs.get("device")
        to_device = target is not None and torch.device(target).type == DEVICE.type
        if not here and not to_device:
            return func(*args, **kwargs)
        self.operations += 1
        if here and target is not None and not to_device:
            self._sync(f"{func} to {target}")
            inner = tree_map_only(OnDevice, lambda value: value.value, kwargs)
            return func(*[value.value if isinstance(value, OnDevice) else value for value in args], **inner)
        if func in SYNCS or (
            func is aten.index.Tensor
            and any(isinstance(value, torch.Tensor) and value.dtype in (torch.bool, torch.uint8) for value in args[1])
        ):
            self._sync(str(func))
        copies = func in (aten._to_copy.default, aten.copy_.default, aten.lift_fresh.default)
        indexes = str(func).startswith(("aten.index", "aten._index", "aten._unsafe_index"))
        for value in given:
            if isinstance(value, OnDevice) or value.ndim == 0 or copies or (indexes and not value.is_floating_point()):
                continue
            raise RuntimeError(f"{func}: a tensor {tuple(value.shape)} of the CPU among those of {DEVICE}")
        if func is aten.copy_.default and not isinstance(args[0], OnDevice):
            self._sync(f"{func} to the CPU")
            return func(args[0], args[1].value)
        if target is not None:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        inner_args, inner_kwargs = tree_map_only(OnDevice, lambda value: value.value, (args, kwargs))
        result = func(*inner_args, **inner_kwargs)
        size = result.numel() if isinstance(result, torch.Tensor) and result.ndim > 2 else 0
        if self.most is not None and size > self.most:
            self.refused += 1
            raise torch.OutOfMemoryError("the fake device is out of memory")
        if func is aten._local_scalar_dense.default or func is aten.equal.default:
            return result
        written = [i for i, argument in enumerate(func._schema.arguments) if _is_written(argument)]
        if written:  # in place, or with out=: what was written to is returned
            names = [argument.name for argument in func._schema.arguments]
            changed = [args[i] if i < len(args) else kwargs[names[i]] for i in written]
            count = len(func._schema.returns)
            return None if count == 0 else changed[0] if count == 1 else tuple(changed)
        plain = (
            any(argument.alias_info is not None for argument in func._schema.arguments) and not here[0].is_inference()
        )
        with torch.inference_mode(torch.is_inference_mode_enabled() and not plain):  # a view is what its base is
            return tree_map_only(torch.Tensor, self._wrap, result)

    def _wrap(self, value):
        if isinstance(value, OnDevice):
            return value
        if value.dtype is torch.float64:
            raise TypeError("float64 on the device, which MPS does not have")
        return OnDevice(value)

    def _sync(self, what):
        frames = [frame for frame in traceback.extract_stack() if frame.filename.startswith(PACKAGE)]
        where = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "elsewhere"
        self.syncs.append((where, what))


class FromValues(TorchFunctionMode):
    """Tensors from Python's numbers are made on the CPU and copied; PyTorch leaves them empty on the device."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.new_tensor and isinstance(args[0], OnDevice):
            return torch.tensor(args[1], **{"dtype": args[0].dtype, **kwargs}).to(DEVICE)
        device = kwargs.get("device")
        if func in (torch.tensor, torch.as_tensor) and device is not None and torch.device(device).type == DEVICE.type:
            if isinstance(args[0], torch.Tensor):
                return args[0].to(device=DEVICE, dtype=kwargs.get("dtype"))
            return func(*args, **{**kwargs, "device": "cpu"}).to(DEVICE)
        return func(*args, **kwargs)


@contextmanager
def fake_device(**options):
    """Within the block `DEVICE` is there."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    fused = patch("torch.optim.adam._device_dtype_check_for_fused")  # which names the devices that it knows
    with fused, FromValues(), FakeDevice(**options) as mode:
        FakeDevice.current = mode
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            yield mode
        finally:
            torch.__future__.set_swap_module_params_on_conversion(before)
            FakeDevice.current = None
