"""What runs of tensors on the device outside of ``torch.compile``, sizes that follow from elements among it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import dmlvk.torch
from dmlvk.spec.errors import UnsupportedError

X = torch.tensor([[3.0, -1.0, 2.0, -1.0], [0.0, 3.0, -1.0, 2.0]])
WHOLE = torch.tensor([2, 0, 2, 5, 1, 2])
NAN = torch.tensor([2.0, float("nan"), 1.0, 2.0, float("nan")])
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "elements that a mask has": (lambda x: x[x > 0], (X,)),
    "rows that a mask has": (lambda x: x[x[:, 0] > 1], (X,)),
    "a mask and places": (lambda x: x[:, x[0] > 0], (X,)),
    "elements set by a mask": (lambda x: x.index_put_((x > 0,), x.new_tensor(7.0)), (X,)),
    "places of true": (lambda x: x.nonzero(), (X,)),
    "places of true, by dimension": (lambda x: x.nonzero(as_tuple=True), (X,)),
    "places of true in nothing": (lambda x: x[:0].nonzero(), (X,)),
    "masked_select": (lambda x: x.masked_select(x < 1), (X,)),
    "masked_select, one row for all": (lambda x: x.masked_select(x[0] < 1), (X,)),
    "unique": (lambda x: x.unique(return_inverse=True, return_counts=True), (X,)),
    "unique, NaN": (lambda x: x.unique(return_counts=True)[1], (NAN,)),
    "unique_consecutive": (lambda x: x.unique_consecutive(return_inverse=True, return_counts=True), (WHOLE.sort()[0],)),
    "unique rows": (lambda x: torch.unique_consecutive(x, return_counts=True, dim=0), (X[[0, 0, 1]],)),
    "bincount": (lambda x: x.bincount(minlength=8), (WHOLE,)),
    "bincount, weights": (lambda x, w: x.bincount(w), (WHOLE, torch.linspace(0, 1, 6))),
    "repeat_interleave": (lambda x: x.repeat_interleave(x), (WHOLE,)),
    "equal": (lambda x: (torch.equal(x, x.clone()), torch.equal(x, x + 1), torch.equal(x, x[:1])), (X,)),
    "unfold": (lambda x: x.unfold(1, 2, 1), (X,)),
    "an output that is given": (lambda x: torch.add(x, x, out=torch.empty(0, device=x.device)), (X,)),
    "sorted into outputs": (
        lambda x: torch.sort(x, out=(torch.empty(0, device=x.device), torch.empty(0, dtype=torch.int64, device=x.device))),
        (X,),
    ),
    "a tensor resized": (lambda x: x.clone().resize_(2, 2), (X,)),
    "shifts": (lambda x: (x << 1, x >> 1), (WHOLE,)),
    "numbers for tensors": (lambda x: torch.where(x > 0, 2.0, x), (X,)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_operators_give_what_pytorch_gives(name: str) -> None:
    function, given = FUNCTIONS[name]
    wanted, tree = pytree.tree_flatten(function(*(item.clone() for item in given)))
    found, same = pytree.tree_flatten(function(*(item.clone().to("dmlvk") for item in given)))
    assert same == tree
    for own, other in zip(found, wanted, strict=True):
        if not isinstance(other, torch.Tensor):
            assert own == other
            continue
        assert (own.device.type, own.dtype, own.shape) == ("dmlvk", other.dtype, other.shape)
        torch.testing.assert_close(own.cpu(), other, rtol=1e-6, atol=0, equal_nan=True)


def test_a_tensor_is_printed() -> None:
    assert str(X.to("dmlvk")) == str(X).replace("]])", "]], device='dmlvk:0')")
    assert "nan" in str(NAN.to("dmlvk"))


def test_random_whole_numbers_follow_the_seed_and_their_limits() -> None:
    made = []
    for _ in range(2):
        torch.manual_seed(3)
        made.append((torch.randint(3, 7, (400,), device="dmlvk").cpu(), torch.randperm(50, device="dmlvk").cpu()))
    (whole, order), again = made
    assert torch.equal(whole, again[0]) and torch.equal(order, again[1])
    assert set(whole.tolist()) == {3, 4, 5, 6}
    assert sorted(order.tolist()) == [*range(50)]
    filled = torch.empty(300, dtype=torch.uint8).to("dmlvk").random_(2).cpu()
    assert set(filled.tolist()) == {0, 1}


def test_random_choices_follow_their_shares() -> None:
    torch.manual_seed(0)
    shares = torch.tensor([0.0, 1.0, 3.0]).to("dmlvk")
    chosen = torch.multinomial(shares, 2000, replacement=True).cpu().bincount(minlength=3)
    assert chosen[0] == 0 and 1380 < int(chosen[2]) < 1620  # 6 deviations on either side of 1500
    assert sorted(torch.multinomial(shares + 1, 3).cpu().tolist()) == [0, 1, 2]


def test_numbers_of_a_generator_are_refused() -> None:
    generator = torch.Generator()
    with pytest.raises(UnsupportedError, match=r"torch\.manual_seed"):
        X.to("dmlvk").random_(generator=generator)


def test_a_constant_of_the_device_may_be_made_in_a_compiled_function() -> None:
    torch.compiler.reset()
    compiled = torch.compile(lambda x: x + torch.tensor(2.0, device=x.device), backend=dmlvk.torch.backend)
    assert torch.equal(compiled(X.to("dmlvk")).cpu(), X + 2)
