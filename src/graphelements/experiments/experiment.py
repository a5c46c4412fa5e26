"""What an experiment is: which curves it has, and what is compared with what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

QUICK = ("training.steps=300", "batches.items=16", "training.compile=off")
QUICK_LARGEST = 16
"""The quick form: the curves that are in it with these settings, one seed, and no larger meshes than this. To compile kernels
takes longer than so few steps."""


@dataclass(frozen=True)
class Curve:
    """A preset with changed settings, trained once for each seed and scored at some resolutions.

    Curves with the same label are one line of a figure or table. `in_quick`: whether the quick form has it.
    """

    name: str
    label: str
    preset: str
    settings: tuple[str, ...] = ()
    resolutions: tuple[int, ...] = (2, 3, 4, 5, 6, 7)
    in_quick: bool = True


@dataclass(frozen=True)
class Experiment:
    """Curves of a task's presets, and how many seeds each has.

    `against`: pairs of curves, or a curve and a reference of the task such as "fem", that are compared house by house;
    `baselines`: curves to which the table gives the ratio of all others of the same preset; `settings`: changes of every preset,
    before a curve's own; `judged_by`: the test houses, or some of the training houses where the results choose settings;
    `labels`: what tables call the task's references; `items`: what they call houses; `also`: endings of methods that are the same
    networks judged by other targets, and what tables call those lines; `beyond`: the resolution with whose error every network's
    on finer meshes are compared.
    """

    name: str
    task: str
    curves: tuple[Curve, ...]
    against: tuple[tuple[str, str], ...]
    num_seeds: int = 3
    baselines: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    judged_by: Literal["test", "validation"] = "test"
    labels: tuple[tuple[str, str], ...] = ()
    items: str = "houses"
    also: tuple[tuple[str, str], ...] = ()
    beyond: int | None = None


def trials(
    preset: str, always: tuple[str, ...], rates: Sequence[float], changes: Mapping[str, tuple[str, ...]], resolution: int
) -> list[Curve]:
    """What a preset is tried with, one curve each: learning rates, and other changes at the first of these rates."""
    tried = {f"rate {rate:g}": (f"training.learning_rate={rate:g}",) for rate in rates}
    first = next(iter(tried.values()))
    tried |= {change: (*first, *settings) for change, settings in changes.items()}
    names = {change: f"{preset}-{change.replace(',', '').replace(' ', '-')}" for change in tried}
    return [
        Curve(names[change], f"{preset}, {change}", preset, (*always, *settings), (resolution,))
        for change, settings in tried.items()
    ]
