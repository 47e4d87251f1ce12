"""transformers in float64: what float32 implementations are to be measured by.

    with exact.doubles():
        net = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
        ...                                            everything up to the optimizer's step

transformers names float32 in many places: norms, softmax, rotary tables, routers, the gated delta rule, the loss.  Inside doubles() each of them means
float64, and a float32 result of any operation is an error, so that none is forgotten."""
import contextlib

import torch
from torch.overrides import TorchFunctionMode


def wider(x):
    return torch.float64 if x is torch.float32 else x


class Doubles(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        y = func(*map(wider, args), **{k: wider(v) for k, v in (kwargs or {}).items()})
        if isinstance(y, torch.Tensor) and y.dtype is torch.float32:
            raise TypeError(f"{func}: a float32 result among doubles")
        return y


@contextlib.contextmanager
def doubles():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Doubles():
            yield
    finally:
        torch.set_default_dtype(before)
