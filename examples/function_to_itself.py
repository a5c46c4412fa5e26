"""A function mapped to itself (paper section 2.3): a few samples of a new function in, its values elsewhere out.

Every item is another random smooth function on [0, 10]. What is learned is how such functions go on between samples, so
that a new one is filled in without further training: meta-learning, with the network as the learned regression algorithm.
"""

from dataclasses import replace

import numpy as np
import torch

import graphelements as ge

SFT = ge.SFT(ge.Box((0.0,), (10.0,)), (ge.InputFunction("f"),), (ge.OutputFunction("f"),))


def draw_batch(random: np.random.Generator, num_functions: int) -> ge.SFTBatch:
    """Sums of two waves, each given at 8 to 14 places and asked for at 32 others."""
    heights, lengths, phases = (random.uniform(*ends, (num_functions, 2)) for ends in ((-2, 2), (3, 8), (0, 2 * np.pi)))

    def sampled(counts: np.ndarray) -> ge.FunctionSamples:
        of = np.repeat(np.arange(num_functions), counts)  # the function of each sample: they stand in one flat table
        points = random.uniform(0, 10, (len(of), 1))
        values = (heights[of] * np.sin(2 * np.pi * points / lengths[of] + phases[of])).sum(1, keepdims=True)
        return ge.FunctionSamples(torch.tensor(points).float(), torch.tensor(values).float(), torch.tensor(of))

    given, asked = sampled(random.integers(8, 15, num_functions)), sampled(np.full(num_functions, 32))
    return ge.SFTBatch({"f": given}, {"f": ge.Queries(asked.points, items=asked.items)}, {"f": asked.values}, num_functions)


def interpolated(batch: ge.SFTBatch) -> torch.Tensor:
    """Straight lines between the samples of each function, level beyond the outermost ones."""
    answers = []
    for one in (batch.selected([item]) for item in range(batch.num_items)):
        x, order = one.inputs["f"].points[:, 0].sort()
        answers.append(np.interp(np.asarray(one.queries["f"].points), x, one.inputs["f"].values[order, 0]))
    return torch.tensor(np.concatenate(answers))


def main(seed: int = 0, steps: int = 500) -> dict[str, float]:
    """Train; mean squared errors on new functions of the network and of two simple answers."""
    network = ge.build_network(SFT, replace(ge.DEFAULT, rounds=6), seed)  # far samples tell little about waves this short
    mesh = ge.grid_mesh(SFT.space, 14).nested()  # nodes as dense as the samples

    def batch_of(step: int) -> tuple[ge.SFTBatch, ge.Mesh]:
        return draw_batch(np.random.default_rng([seed, step]), num_functions=16), mesh

    for report in ge.fit(network, batch_of, ge.TrainingConfig(steps, learning_rate=4e-3, compile="off")):
        if report.step % 100 == 0:
            print(f"step {report.step}: loss {report.loss:.3f}")
    test = draw_batch(np.random.default_rng([seed, 1_000_000]), num_functions=200)  # no step drew these
    answers = {"network": network.predict(test, mesh)["f"], "interpolation": interpolated(test), "mean": torch.zeros(1)}
    errors = {name: (answer - test.targets["f"]).square().mean().item() for name, answer in answers.items()}
    print("mean squared error:", ", ".join(f"{name} {error:.3f}" for name, error in errors.items()))
    return errors


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
