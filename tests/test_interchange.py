"""Meshes to and from PyTorch Geometric and meshio."""

import pytest
import torch

from graphelements import Box, InputError, Mesh, grid_mesh, scattered_mesh
from graphelements.topology import multiscale_edges


def test_a_mesh_survives_the_way_to_pyg_and_back():
    pytest.importorskip("torch_geometric")
    mesh = scattered_mesh(Box(), 30, torch.Generator().manual_seed(0), multiscale_edges())
    data = mesh.to_pyg()
    assert data.num_nodes == 30
    assert data.num_edges == len(mesh.senders)
    back = Mesh.from_pyg(data, Box())
    for name in ("positions", "senders", "receivers", "levels", "cells"):
        assert torch.equal(getattr(back, name), getattr(mesh, name))


def test_a_mesh_survives_the_way_through_a_vtk_file(tmp_path):
    meshio = pytest.importorskip("meshio")
    mesh = grid_mesh(Box((0.0, 0.0), (2.0, 1.0)), (4, 3))
    mesh.to_meshio().write(tmp_path / "mesh.vtu")
    back = Mesh.from_meshio(meshio.read(tmp_path / "mesh.vtu"), mesh.space)
    assert torch.equal(back.positions, mesh.positions)
    assert torch.equal(back.cells, mesh.cells)
    assert back.diameter == mesh.diameter == 5
    assert set(zip(back.senders.tolist(), back.receivers.tolist(), strict=True)) == set(
        zip(mesh.senders.tolist(), mesh.receivers.tolist(), strict=True)
    )


def test_a_mesh_of_points_alone_is_refused():
    meshio = pytest.importorskip("meshio")
    with pytest.raises(InputError, match="lines, triangles or tetrahedra"):
        Mesh.from_meshio(meshio.Mesh([[0.0, 0.0]], [("vertex", [[0]])]), Box())


def test_points_out_of_the_plane_are_refused():
    meshio = pytest.importorskip("meshio")
    points = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.5]]
    with pytest.raises(InputError, match="need 2 coordinates"):
        Mesh.from_meshio(meshio.Mesh(points, [("triangle", [[0, 1, 2]])]), Box())


def test_meshes_of_other_libraries_are_checked():
    meshio, data = pytest.importorskip("meshio"), pytest.importorskip("torch_geometric.data")
    triangle = [[0.0, 0.0], [1.0, 0.0], [0.0, 3.0]]
    with pytest.raises(InputError, match="lie in the space"):
        Mesh.from_meshio(meshio.Mesh(triangle, [("triangle", [[0, 1, 2]])]), Box())
    edges, face = torch.tensor([[0, 1], [1, 0]]), torch.tensor([[0], [1], [2]])
    with pytest.raises(InputError, match="finite"):
        Mesh.from_pyg(data.Data(pos=torch.full((2, 2), torch.nan), edge_index=edges), Box())
    with pytest.raises(InputError, match="cells have corners"):
        Mesh.from_pyg(data.Data(pos=torch.rand(2, 2), edge_index=edges, face=face), Box())
