"""Semantic segmentation as a map between functions (paper section 3.1): colours of some pixels in, class probabilities out.

Synthetic images have a disc and a square on a background. Colours are so noisy that one pixel says little: its surroundings
decide. The network is given a random third of the pixels.
"""

import numpy as np
import torch

import graphelements as ge

SIZE = 32  # pixels along each side; a pixel is also the unit of length
CLASSES = ("background", "disc", "square")
COLOURS = np.array([[110, 130, 120], [160, 110, 90], [100, 100, 180]])  # the mean of each class, in 0 to 255
NOISE = 60
SFT = ge.SFT(
    ge.Box((0.0, 0.0), (float(SIZE), float(SIZE))),
    (ge.InputFunction("colour", channels=3),),
    (ge.OutputFunction("label", channels=len(CLASSES), loss="cross_entropy"),),  # a point of the probability simplex
)
PIXELS = torch.cartesian_prod(torch.arange(SIZE) + 0.5, torch.arange(SIZE) + 0.5)  # their centres


def draw_image(random: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """The colour and the class of every pixel; one shape may hide a part of the other."""
    centres, radii = random.uniform(6, SIZE - 6, size=(2, 2)), random.uniform(4, 9, size=2)
    offsets = PIXELS.numpy()[:, None] - centres  # pixels, shapes, 2
    inside = np.stack([np.hypot(*offsets[:, 0].T) < radii[0], np.abs(offsets[:, 1]).max(1) < radii[1]])
    classes = np.zeros(len(PIXELS), dtype=int)
    for shape in random.permutation(2):
        classes[inside[shape]] = shape + 1
    colours = COLOURS[classes] + random.normal(0, NOISE, size=(len(PIXELS), 3))
    return torch.tensor(colours, dtype=torch.float32).clamp(0, 255), torch.tensor(classes)


def draw_batch(random: np.random.Generator, num_images: int, num_asked: int) -> ge.SFTBatch:
    """Images, each with a third of its pixels as samples and `num_asked` pixels as queries."""
    images = []
    for _ in range(num_images):
        colours, classes = draw_image(random)
        given = torch.tensor(random.permutation(len(PIXELS))[: len(PIXELS) // 3])
        asked = torch.tensor(random.permutation(len(PIXELS))[:num_asked])
        samples = ge.FunctionSamples(PIXELS[given], colours[given])
        target = torch.nn.functional.one_hot(classes[asked], len(CLASSES)).float()
        images.append(ge.SFTBatch({"colour": samples}, {"label": ge.Queries(PIXELS[asked])}, {"label": target}))
    return ge.collate(images)


def main(seed: int = 0, steps: int = 200) -> dict[str, float]:
    """Train; the share of pixels of new images that get the right class."""
    network = ge.build_network(SFT, seed=seed)
    network.fit_normalisation([draw_batch(np.random.default_rng(seed), num_images=50, num_asked=1)])
    mesh = ge.grid_mesh(SFT.space, 9).nested()  # a node every four pixels

    def batch_of(step: int) -> tuple[ge.SFTBatch, ge.Mesh]:
        return draw_batch(np.random.default_rng([seed, step]), num_images=4, num_asked=256), mesh

    for report in ge.fit(network, batch_of, ge.TrainingConfig(steps, learning_rate=5e-3, compile="off")):
        if report.step % 50 == 0:
            print(f"step {report.step}: cross entropy {report.loss:.3f}")

    test = draw_batch(np.random.default_rng([seed, 1_000_000]), num_images=50, num_asked=len(PIXELS))  # no step drew these
    probabilities, classes = network.predict(test, mesh)["label"], test.targets["label"].argmax(-1)
    accuracy = (probabilities.argmax(-1) == classes).float().mean().item()
    background = (classes == 0).float().mean().item()
    print(f"right on {accuracy:.1%} of the pixels of new images; always saying background: {background:.1%}")
    return {"accuracy": accuracy, "background": background}


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
