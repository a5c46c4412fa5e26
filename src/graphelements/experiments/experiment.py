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


@dataclass(frozen=True)
class Trials:
    """What a preset is tried with for so many steps: learning rates, and other changes at the first of these; all of them with
    the settings `always`."""

    preset: str
    steps: int
    rates: tuple[float, ...]
    changes: Mapping[str, tuple[str, ...]]
    always: tuple[str, ...] = ()

    def curves(self, resolution: int) -> list[Curve]:
        """One for each trial."""
        tried = {f"rate {rate:g}": (f"training.learning_rate={rate:g}",) for rate in self.rates}
        first = next(iter(tried.values()))
        tried |= {change: (*first, *settings) for change, settings in self.changes.items()}
        steps = (f"training.steps={self.steps}", f"training.validate_every={self.steps}", *self.always)
        return [
            Curve(
                f"{self.preset}-{change.replace(',', '').replace(' ', '-')}",
                f"{self.preset}, {change}",
                self.preset,
                (*steps, *settings),
                (resolution,),
            )
            for change, settings in tried.items()
        ]


def tuning(name: str, of: Experiment, trials: Sequence[Trials], resolution: int) -> Experiment:
    """Trials of presets for an experiment: compared with the first of the same preset, judged by some of the training houses."""
    curves = [each.curves(resolution) for each in trials]
    return Experiment(
        name,
        of.task,
        tuple(curve for of_preset in curves for curve in of_preset),
        against=tuple((curve.name, first.name) for first, *others in curves for curve in others),
        num_seeds=1,
        judged_by="validation",
        labels=of.labels,
        items=of.items,
    )
