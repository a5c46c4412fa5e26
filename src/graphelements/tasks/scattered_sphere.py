"""Stations on a sphere: a field of harmonics up to degree 8, measured at few or many places -> the field anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..data.harmonics import harmonics, least_squares, left_out_error, most_likely
from ..data.kriging import common_on_sphere, kriged
from ..data.sampled_fields import SampledFields
from ..data.sphere_fields import DEGREE, SCATTERED_SPHERE, scattered_fields, station_variances
from .poisson_sphere import OURS, mesh_of
from .rivals import tuned_rivals
from .sampled_task import SampledTask
from .sphere_symmetries import SYMMETRIES, transformed

LENGTHS = (0.5, 0.7, 0.8, 1.0, 1.2, 1.5, 2.0)  # of correlation, in radii, that kriging tries

PRESETS = {
    "default": replace(
        OURS,
        network=replace(OURS.network, linear=True, norm="none"),  # the best estimate of a normal field is linear
        mesh=replace(OURS.mesh, layout="icosahedron"),
        batches=replace(OURS.batches, resolutions=(1, 2, 2, 4), nesting_ratios=(2.0, 2.0, 1.5)),
        training=replace(OURS.training, steps=2000, validate_every=500),
    ),
    **tuned_rivals(SYMMETRIES, np_training=(16000, 4000), attention_training=(4000, 1000)),  # for about as long as ours
}


def references(data: SampledFields) -> Iterator[tuple[str, np.ndarray]]:
    """Least squares in harmonics, of each item's own degree, chosen by leaving out one station after the other, and of the one
    degree that turns out best on these very data; kriging with the length of correlation that does, of fields whose mean over the
    sphere is 0; the best of all estimates, which knows how fields are distributed; the mean.
    """
    targets = data.items.targets["field"][:, 0].double().numpy()
    fixed: dict[int, list[np.ndarray]] = {degree: [] for degree in range(DEGREE + 1)}
    by_length: dict[float, list[np.ndarray]] = {length: [] for length in LENGTHS}
    chosen, optimal, variances = [], [], station_variances()
    common = {length: common_on_sphere(length) for length in LENGTHS}
    for points, values, there in data.each():
        left_out = {degree: left_out_error(points, values, degree) for degree in fixed}
        best = min(left_out, key=lambda degree: left_out[degree])
        for degree, answers in fixed.items():
            answers.append(harmonics(there, degree) @ least_squares(points, values, degree))
        chosen.append(fixed[best][-1])
        for length, answers in by_length.items():
            answers.append(kriged(points, values, there, length, common[length]))
        optimal.append(harmonics(there, DEGREE) @ most_likely(points, values, variances))
    yield "harmonics", np.concatenate(chosen)
    for name, found in (("harmonics-fixed", fixed), ("kriging", by_length)):
        joined = [np.concatenate(answers) for answers in found.values()]
        yield name, min(joined, key=lambda answers: float(np.mean((answers - targets) ** 2)))
    yield "optimal", np.concatenate(optimal)
    yield "mean", np.full(len(targets), targets.mean())


TASK = SampledTask("scattered-sphere", SCATTERED_SPHERE, PRESETS, scattered_fields, mesh_of, references, SYMMETRIES, transformed)
