"""Fields through samples: they are those of kriging, know how well they are known, and do not depend on company or labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from cases import seeded
from scipy.special import kv

from graphelements import fitting
from graphelements.building import build_network
from graphelements.errors import InputError
from graphelements.fitting import BARYCENTRIC, NOISE, RANGES, _prior, fit_fields, num_fitted
from graphelements.functions import SFT, InputFunction, OutputFunction
from graphelements.meshes import Mesh, grid_mesh, mesh_at, scattered_mesh
from graphelements.network_config import DEFAULT
from graphelements.samples import FunctionSamples, Queries, SFTBatch
from graphelements.spaces import Box, Space, Sphere
from graphelements.sphere_meshes import icosahedral_mesh, sphere_mesh
from graphelements.unions import union

PLANE, GLOBE = Box((0.0, 0.0), (2.0, 2.0)), Sphere(3.0)
MESHES = {
    "grid": lambda: grid_mesh(PLANE, 8),
    "scattered": lambda: scattered_mesh(PLANE, 50, seeded(0)),
    "icosahedron": lambda: icosahedral_mesh(GLOBE, 2),
    "latitudes": lambda: sphere_mesh(GLOBE, 10),
}


def samples_of(space: Space, counts: list[int], channels: int = 1, seed: int = 0) -> FunctionSamples:
    """Of a smooth function, another one for each channel; so many for each item."""
    items = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    points = space.sample(len(items), seeded(seed))
    return FunctionSamples(points, smooth(points / space.unit_length, channels), items)


def smooth(places: torch.Tensor, channels: int = 1) -> torch.Tensor:
    return torch.cat([torch.sin(2 * places.sum(-1, keepdim=True) + shift) for shift in range(channels)], -1)


@pytest.mark.parametrize("name", MESHES)
def test_a_smooth_function_of_many_samples_is_found_again(name: str) -> None:
    mesh = MESHES[name]()
    fields = fit_fields({"f": samples_of(mesh.space, [400], 2)}, {"f": 2}, union(mesh, 1))
    there = mesh.space.sample(200, seeded(1))
    found = fields.at(there, torch.zeros(200, dtype=torch.long))
    assert found.shape == (200, num_fitted([2])[0])
    for number in range(len(RANGES)):
        values, variances = found[:, 4 * number : 4 * number + 2], found[:, 8 + 2 * number]
        true = smooth(there / mesh.space.unit_length, 2)
        assert float((values - true).square().mean()) < 0.01 * float(true.var())
        assert 0 < float(variances.mean()) < 0.1


def test_it_is_kriging_with_a_matern_covariance() -> None:
    """On a fine mesh, away from the border, fields and variances are those of the closed form of smoothness 1."""
    space = Box((0.0, 0.0), (8.0, 8.0))  # a unit of length is the side: correlations reach over 2 of these 8
    mesh = grid_mesh(space, 22)
    points = torch.tensor([[3.6, 3.9], [4.6, 4.4], [3.9, 4.9]])
    values = torch.tensor([[1.0], [-0.5], [0.7]])
    fields = fit_fields({"f": FunctionSamples(points, values, torch.zeros(3, dtype=torch.long))}, {"f": 1}, union(mesh, 1))
    there = torch.tensor([[4.2, 4.1], [3.2, 4.4], [4.0, 3.2], [5.0, 5.0]])
    found = fields.at(there, torch.zeros(4, dtype=torch.long)).numpy()

    def covariance(a: torch.Tensor, b: torch.Tensor) -> np.ndarray:
        scaled = torch.cdist(a, b).double().numpy() / (8.0 * RANGES[1])
        return np.where(scaled > 0, scaled * kv(1, np.maximum(scaled, 1e-12)), 1.0)

    known = covariance(points, points) + NOISE * np.eye(3)
    mean = covariance(there, points) @ np.linalg.solve(known, values.numpy())
    left = 1 - np.einsum("ij,ji->i", covariance(there, points), np.linalg.solve(known, covariance(points, there)))
    assert found[:, 2] == pytest.approx(mean[:, 0], abs=0.08)
    prior = (
        fit_fields({}, {"f": 1}, union(mesh, 1)).at(there, torch.zeros(4, dtype=torch.long))[:, 6].numpy()
    )  # more at the border
    assert found[:, 6] / prior == pytest.approx(left, abs=0.08)


@pytest.mark.parametrize("name", MESHES)
def test_where_nothing_is_known_fields_are_zero_and_open(name: str) -> None:
    mesh = MESHES[name]()
    values = fit_fields({}, {"f": 1}, union(mesh, 2)).numbers
    assert bool((values[:, :4] == 0).all())
    assert values[:, [4, 6]].mean(0) == pytest.approx([1.0, 1.0], rel=1e-4)


@pytest.mark.parametrize("name", MESHES)
def test_the_second_field_of_a_range_is_the_first_under_the_condition_that_its_integral_is_zero(name: str) -> None:
    mesh = MESHES[name]()
    samples, one, num = samples_of(mesh.space, [12]), union(mesh, 1), mesh.num_nodes
    numbers = fit_fields({"f": samples}, {"f": 1}, one).numbers.double()
    areas = one.areas.double()
    areas = areas.clamp(min=0.01 * float(areas.mean()))
    weights = BARYCENTRIC(samples.points, samples.items, one).gather(torch.eye(num)).double()
    for number, precision in enumerate(_prior(mesh)[1]):
        system = torch.zeros(num + 1, num + 1, dtype=torch.float64)  # the least of the sum, with a multiplier for the integral
        system[:num, :num] = weights.T @ weights / NOISE + precision
        system[:num, num] = system[num, :num] = areas
        right = torch.cat([weights.T @ samples.values.double() / NOISE, torch.zeros(1, 1, dtype=torch.float64)])
        free, bound = numbers[:, 2 * number], numbers[:, 2 * number + 1]
        assert bound.numpy() == pytest.approx(torch.linalg.solve(system, right)[:num, 0].numpy(), abs=1e-4)
        assert float((free - bound).abs().max()) > 1e-3
        left = torch.linalg.inv(system)[:num, :num].diagonal()
        assert numbers[:, 5 + 2 * number].numpy() == pytest.approx(left.numpy(), abs=1e-4)


@pytest.mark.parametrize("name", MESHES)
def test_an_item_is_fitted_the_same_in_any_company(name: str) -> None:
    mesh = MESHES[name]()
    samples = samples_of(mesh.space, [7, 0, 30])
    smaller, larger = (scattered_mesh(mesh.space, mesh.num_nodes + more, seeded(4)) for more in (-20, 20))
    meshes = [mesh, smaller, larger]
    together = fit_fields({"f": samples}, {"f": 1}, union(meshes)).numbers.split([each.num_nodes for each in meshes])
    for item, own_mesh in enumerate(meshes):
        own = samples.items == item
        alone = FunctionSamples(samples.points[own], samples.values[own], samples.items[own] * 0)
        for _ in range(2):  # the second time with what was kept of the mesh
            assert fit_fields({"f": alone}, {"f": 1}, union(own_mesh, 1)).numbers == pytest.approx(together[item], abs=1e-5)


def test_priors_are_kept_of_meshes_that_do_not_move() -> None:
    still = grid_mesh(PLANE, 4)
    moving = replace(still, positions=still.positions.clone().requires_grad_())
    assert _prior(still) is _prior(still)
    assert _prior(moving) is not _prior(moving)
    assert all(precision.requires_grad for precision in _prior(moving)[1])


def test_items_are_solved_for_in_pieces_that_bound_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh, samples = grid_mesh(PLANE, 5), samples_of(PLANE, [7, 3, 0, 9])
    together = fit_fields({"f": samples}, {"f": 1}, union(mesh, 4)).numbers
    monkeypatch.setattr(fitting, "AT_ONCE", 2 * 25**2)
    assert fit_fields({"f": samples}, {"f": 1}, union(mesh, 4)).numbers == pytest.approx(together, abs=1e-6)


def test_labels_of_nodes_do_not_matter() -> None:
    mesh = scattered_mesh(PLANE, 30, seeded(0))
    order = torch.randperm(30, generator=seeded(3))
    turned = mesh_at(PLANE, mesh.positions[order])
    samples, there = samples_of(PLANE, [12]), PLANE.sample(40, seeded(2))
    items = torch.zeros(40, dtype=torch.long)
    first, second = (fit_fields({"f": samples}, {"f": 1}, union(each, 1)).at(there, items) for each in (mesh, turned))
    assert first == pytest.approx(second, abs=1e-4)


def test_fine_meshes_are_fitted_by_a_coarser_one_behind_them() -> None:
    fine = grid_mesh(PLANE, 40).nested()
    fields = fit_fields({"f": samples_of(PLANE, [300])}, {"f": 1}, union(fine, 1))
    assert fields.mesh.num_nodes < 512
    there = PLANE.sample(50, seeded(1))
    found = fields.at(there, torch.zeros(50, dtype=torch.long))[:, :1]
    assert float((found - smooth(there / PLANE.unit_length)).square().mean()) < 0.01
    with pytest.raises(InputError, match="nest the mesh"):
        fit_fields({}, {"f": 1}, union(grid_mesh(PLANE, 40), 1))


def test_nodes_may_coincide_or_stand_alone() -> None:
    positions = torch.tensor([[0.1, 0.1], [0.1, 0.1], [1.9, 0.1], [1.0, 1.8], [1.0, 0.1]])  # two at one place, one on an edge
    flat = replace(scattered_mesh(PLANE, 5, seeded(0)), positions=positions, cells=torch.tensor([[0, 2, 3], [1, 2, 4]]))
    for mesh in (mesh_at(PLANE, positions), mesh_at(PLANE, positions[:1]), sphere_mesh(GLOBE, 2), flat):
        moving = replace(mesh, positions=mesh.positions.clone().requires_grad_())
        fields = fit_fields({"f": samples_of(mesh.space, [20])}, {"f": 1}, union(moving, 1))
        assert bool(fields.numbers.isfinite().all())
        fields.numbers.sum().backward()
        assert moving.positions.grad is not None
        assert bool(moving.positions.grad.isfinite().all())


def network(space: Space) -> tuple:
    sft = SFT(space, (InputFunction("rain"), InputFunction("soil", 2)), (OutputFunction("level"),))
    return build_network(sft, replace(DEFAULT, fitted=True, num_heard=0), seed=1).eval(), sft


@pytest.mark.parametrize("mesh", [grid_mesh(PLANE, 5).nested(), icosahedral_mesh(GLOBE, 1)], ids=["grid", "icosahedron"])
def test_networks_see_fields_at_nodes_and_queries(mesh: Mesh) -> None:
    made, sft = network(mesh.space)
    batch = SFTBatch(
        {"rain": samples_of(sft.space, [9, 4]), "soil": samples_of(sft.space, [3, 0], 2)},
        {"level": Queries(sft.space.sample(6, seeded(4)), items=torch.tensor([0, 0, 0, 1, 1, 1]))},
        num_items=2,
    )
    answers = made.predict(batch, mesh)["level"]
    assert made.predict(batch, mesh, chunk=1)["level"] == pytest.approx(answers, abs=1e-5)
    with torch.no_grad():
        made.field_encoder.weight.zero_()
        unread = made.predict(batch, mesh)["level"]
        assert not torch.allclose(answers, unread)  # nodes saw them
        first = next(made.decoders["level"].parameters())
        first[:, -num_fitted([f.channels for f in sft.inputs])[0] :] = 0
        assert not torch.allclose(unread, made.predict(batch, mesh)["level"])  # and so did the decoder
    mesh_union = made.meshes(mesh, 2)
    inputs, _ = made.seen(batch, sft.space)
    states, told = made.absorb(inputs, mesh_union)
    with pytest.raises(InputError, match="fitted fields"):
        made.read(states, batch.queries, mesh_union, told)


@pytest.mark.parametrize("space", [PLANE, GLOBE], ids=["plane", "globe"])
def test_gradients_to_positions_are_those_of_differences(space: Space) -> None:
    mesh, there = scattered_mesh(space, 12, seeded(0)), space.sample(7, seeded(5)).double()
    samples, items = samples_of(space, [9]), torch.zeros(7, dtype=torch.long)
    given = {"f": FunctionSamples(samples.points.double(), samples.values.double(), samples.items)}

    def found(positions: torch.Tensor) -> torch.Tensor:
        return fit_fields(given, {"f": 1}, union(replace(mesh, positions=positions), 1)).at(there, items)

    assert torch.autograd.gradcheck(found, (mesh.positions.double().requires_grad_(),), eps=1e-7, atol=1e-3, rtol=1e-3)


def test_other_dimensions_are_refused_in_one_line() -> None:
    sft = SFT(Box((0.0,) * 3, (1.0,) * 3), (InputFunction("rain"),), (OutputFunction("level"),))
    with pytest.raises(InputError, match=r"plane or a sphere.*network.fitted=false"):
        build_network(sft, replace(DEFAULT, fitted=True))
