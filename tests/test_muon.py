"""Muon against torch's own, and against the singular value decomposition."""

from typing import Any

import pytest
import torch

from graphelements.muon import Muon, orthogonalised

SHAPES = [(24, 40), (40, 24), (24, 40), (32, 32)]


def test_the_same_steps_as_torch_takes_if_it_keeps_the_precision(monkeypatch: pytest.MonkeyPatch):
    """Products in bfloat16 are not only less exact: processors that announce them and may not do them end the process."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    drawn = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=drawn) for shape in SHAPES]
    ours, theirs = ([torch.nn.Parameter(matrix.clone()) for matrix in start] for _ in range(2))
    settings: dict[str, Any] = {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}
    optimizers = Muon(ours, **settings), torch.optim.Muon(theirs, adjust_lr_fn="match_rms_adamw", **settings)
    for _ in range(4):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(a.shape, generator=drawn)
            b.grad = a.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    for a, b, first in zip(ours, theirs, start, strict=True):
        assert (a - b).norm() < 1e-5 * (b - first).norm()


@pytest.mark.parametrize("shape", [(16, 16), (8, 30), (30, 8)])
def test_singular_vectors_stay_and_values_come_near_one(shape):
    matrices = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = orthogonalised(matrices)
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    values = u.mT @ found @ v.mT
    sizes = values.diagonal(dim1=1, dim2=2)
    assert (values - torch.diag_embed(sizes)).abs().max() < 1e-6
    assert sizes.min() > 0
    known = torch.tensor([1.0, 0.3, 0.1, 0.03, 0.01, 0.004])
    values = torch.linalg.svdvals(orthogonalised(torch.diag(known)[None]))
    assert values.min() > 0.68
    assert values.max() < 1.21


def test_matrices_without_gradient_stay():
    matrices = [torch.nn.Parameter(torch.ones(3, 3)) for _ in range(2)]
    matrices[0].grad = torch.eye(3)
    Muon(matrices, lr=0.1).step()
    assert not torch.equal(matrices[0], matrices[1])
    assert torch.equal(matrices[1], torch.ones(3, 3))


def test_what_fades_is_left_out_before_it_makes_products_denormal():
    """The momentum of a unit that no longer learns falls by a twentieth a step; denormal numbers take a hundred times as long."""
    matrices = torch.randn(1, 12, 16, generator=torch.Generator().manual_seed(2))
    faded = matrices.clone()
    faded[:, 5:] *= 10.0 ** -torch.arange(10.0, 38.0, 4.0)[:, None]
    found, alone = orthogonalised(faded), orthogonalised(faded[:, :5])
    assert torch.equal(found[:, 5:], torch.zeros(1, 7, 16))
    assert torch.allclose(found[:, :5], alone, atol=1e-6)
