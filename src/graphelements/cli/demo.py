"""`graphelements demo`: the main job from data to figures, made of the other commands."""

from __future__ import annotations

from pathlib import Path

import typer

from . import data, evaluate, train

TRAIN_HOUSES, TEST_HOUSES, STEPS = 200, 30, 1600


def run_demo(out: str) -> None:
    """Generate houses, train, evaluate and draw, each step skipped where its result is there already."""
    from ..checkpoints import load_checkpoint
    from ..data.house_files import load_houses
    from ..data.poisson import p1_solution
    from ..files import exists
    from ..tasks.house_fields import draw_comparison, grid_points
    from ..tasks.poisson_square import TASK, predict_scenario

    folder = Path(out)
    houses = {"train": folder / "train_houses.npz", "test": folder / "test_houses.npz"}
    for seed, (name, num) in enumerate((("train", TRAIN_HOUSES), ("test", TEST_HOUSES)), start=1):
        if not exists(houses[name]):
            typer.echo(f"{name}: {num} random houses, 32 scenarios each, solved on 250 x 250 nodes")
            data.generate(TASK.name, houses[name], num, seed)
    typer.echo(f"training the default network on meshes from 2x2 to 7x7, {STEPS} steps")
    run = folder / "run"
    settings = [f"training.steps={STEPS}", "training.validate_every=800"]
    train.train(TASK.name, houses["train"], run, "default", settings)
    model = run / "model.safetensors"
    typer.echo(f"{TEST_HOUSES} houses never seen in training, by the network just trained:")
    evaluate.evaluate(str(model), houses["test"], "2,3,4,5,6,7", "all", False, folder / "evaluation.json")
    typer.echo(f"the same houses, by the model that comes with the library, graphelements.load({TASK.name!r}):")
    evaluate.evaluate(TASK.name, houses["test"], "2,3,4,5,6,7", "all", False, folder / "shipped_evaluation.json")

    checkpoints = {"house": load_checkpoint(model), "shipped_house": load_checkpoint(TASK.name)}
    points = grid_points(100)
    figures = []
    for house in load_houses(houses["test"]).houses[:3]:
        scenario = house.scenario(0)
        for name, checkpoint in checkpoints.items():
            prediction = predict_scenario(checkpoint.network, scenario, TASK.mesh(checkpoint.mesh, 7), points)
            figures.append(folder / f"{name}_{house.number}.png")
            draw_comparison(figures[-1], scenario, p1_solution(scenario, points), prediction, TASK.mesh(checkpoint.mesh, 7))
    tables = "evaluation.json, shipped_evaluation.json"
    typer.echo(f"tables and figures are in {folder}/: {tables}, {', '.join(figure.name for figure in figures)}")
