"""The evaluations of an experiment in one summary, and the summary as tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files import read_json, replaced
from .comparison import Comparison, compared, compared_with_own, learned
from .experiment import Curve, Experiment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AUGMENTATION = "symmetries"  # the setting of batches that says whether training saw symmetries of the data
OPTIMISED = ", optimised meshes"  # behind the label of a curve
OPTIMISED_NOTE = "Optimised meshes are judged on the half of the scenarios that did not adapt them, all else on all scenarios."
MANY_TIMES = 1000  # above it a ratio of errors says nothing more
DOTS = 150  # an inch of a figure
Summary = dict[str, Any]


def summarised(experiment: Experiment, paths: Mapping[str, Sequence[Path]], origin: str, data: str, quick: bool) -> Summary:
    """Means and standard deviations over seeds, times, and paired comparisons; `paths` are the evaluations of every curve.

    Errors are known by their resolution as text, or by the method where that knows no mesh.
    """
    saved = {name: [read_json(path, "an evaluation") for path in files] for name, files in paths.items()}
    lines: dict[str, Summary] = {}
    for curve in experiment.curves:
        if curve.name in saved:
            _add(lines, curve, saved[curve.name])
    for ending, told in experiment.also:
        for curve in (curve for curve in experiment.curves if curve.name in saved):
            _add(lines, replace(curve, label=f"{curve.label}, {told}"), saved[curve.name], ending)
    lines = {label: line for label, line in lines.items() if line["errors"]}
    everything = [evaluation for evaluations in saved.values() for evaluation in evaluations]
    labels = dict(experiment.labels)
    reference: dict[str, dict[str, list]] = {name: {} for name in labels}
    for score in (score for evaluation in everything for score in evaluation["results"]):
        if score["method"] in reference:
            reference[score["method"]].setdefault(str(score["resolution"]), []).append(score)
    names = {curve.name: curve.label for curve in experiment.curves} | labels
    seeds = {name: [evaluation["training"]["seed"] for evaluation in of_curve] for name, of_curve in saved.items()}
    comparisons = []
    for ours, theirs in experiment.against:
        known = theirs if theirs in labels else None
        other = ours if known else theirs
        both = set(seeds.get(ours, [])) & set(seeds.get(other, []))
        if both:  # seeds differ by more than many a change does
            first, second = (
                [path for path, seed in zip(paths[name], seeds[name], strict=True) if seed in both] for name in (ours, other)
            )
            comparisons += [pair_of(names[ours], names[theirs], row) for row in compared(first, second, known)]
    finer = {}
    for curve in experiment.curves:
        rows = compared_with_own(paths[curve.name], experiment.beyond) if experiment.beyond and curve.name in paths else []
        known = {str(row.resolution): [row.ratio, row.ratio_low, row.ratio_high] for row in rows if row.ratio_high < MANY_TIMES}
        finer |= {curve.label: known} if known else {}
    return {
        "experiment": experiment.name,
        "quick": quick,
        "houses": {"origin": origin, "data": data, "scored": everything[0]["contents"]["houses"], "called": experiment.items},
        "baselines": [c.label for c in experiment.curves if c.name in experiment.baselines and c.name in saved],
        "lines": list(lines.values()),
        "references": {
            labels[name]: {key: _over_seeds(scores[:1], scores) for key, scores in sorted(found.items(), key=_size)}
            for name, found in reference.items()
            if found
        },
        "comparisons": comparisons,
        "beyond": experiment.beyond,
        "finer": finer,
        "optimised": {},
    }


def pair_of(ours: str, theirs: str, row: Comparison) -> Summary:
    """A comparison as a summary has it."""
    kept = {name: getattr(row, name) for name in ("resolution", "difference", "low", "high", "less")}
    ratios = {name: getattr(row, name) if row.ratio_high < MANY_TIMES else None for name in ("ratio", "ratio_low", "ratio_high")}
    return {"ours": ours, "theirs": theirs} | kept | ratios


def _add(lines: dict[str, Summary], curve: Curve, evaluations: list[dict[str, Any]], ending: str = "") -> None:
    """Put the evaluations of a curve into the line of its label: of the learned methods with this ending."""
    trained = [evaluation["training"] for evaluation in evaluations]
    line = lines.setdefault(
        curve.label,
        {
            "label": curve.label,
            "preset": curve.preset,
            "settings": list(curve.settings),
            "num_weights": trained[0].get("num_weights"),
            "steps": trained[0]["training"]["steps"],
            "trained_on": _sizes_of(trained[0]["batches"]),
            **{name: value for name, value in trained[0]["batches"].items() if name == AUGMENTATION},
            "also": ending != "",
            "cells": [],
            "errors": {},
        },
    )
    for told in trained:
        cell = {"curve": curve.name, "seed": told["seed"], "seconds": told["seconds"], "threads": told["threads"]}
        line["cells"].append(cell)
    scores: dict[str, list] = {}
    for score in (score for evaluation in evaluations for score in evaluation["results"]):
        key = learned(score | {"method": score["method"].removesuffix(ending)}) if score["method"].endswith(ending) else None
        if key is not None:
            scores.setdefault(str(key), []).append(score)
    line["errors"] |= {key: _over_seeds(of_seeds, of_seeds) for key, of_seeds in scores.items()}


def _sizes_of(batches: Mapping[str, Any]) -> list[int]:
    """The resolutions of the meshes in training."""
    return [*batches["resolutions"], *(batches["large_resolutions"] if batches.get("large_share") else [])]


def _over_seeds(scores: Sequence[Mapping[str, Any]], timed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    errors = [score["mse_mean"] for score in scores]
    return {
        "mean": float(np.mean(errors)),
        "std": float(np.std(errors, ddof=1)) if len(errors) > 1 else None,
        "of_seed": errors,
        "nodes": scores[0]["nodes"],
        "seconds_per_scenario": float(np.median([score["seconds_per_scenario"] for score in timed])),
    }


def _size(item: tuple[str, Any]) -> int:
    return int(item[0])


def _meshed(errors: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The errors of methods that know a mesh."""
    return [(key, error) for key, error in errors.items() if key.isdigit() and key != "0"]


def size_name(resolution: int, nodes: int) -> str:
    """What people call a mesh: 7x7, or the number of its nodes where it is no square grid."""
    return f"{resolution}x{resolution}" if nodes == resolution**2 else f"{nodes} nodes"


def title_of(summary: Summary) -> str:
    """What the numbers are, in a line."""
    houses = summary["houses"]
    start = "Quick form, few steps: m" if summary["quick"] else "M"
    return f"{start}ean squared error on {houses['scored']} unseen {houses['called']} ({houses['origin']})"


def table_of(summary: Summary) -> str:
    """The summary in Markdown: errors, training, and paired differences."""
    lines, baselines = summary["lines"], summary["baselines"]
    known = {int(key): size_name(int(key), error["nodes"]) for line in lines for key, error in _meshed(line["errors"])}
    for errors in summary["references"].values():
        known = {int(key): size_name(int(key), error["nodes"]) for key, error in _meshed(errors)} | known
    sizes = [str(size) for size in sorted(known)]
    ratios = {(row["ours"], row["resolution"]): row["ratio"] for row in summary["comparisons"] if row["theirs"] in baselines}

    def cell(error: Mapping[str, Any] | None, ratio: float | None = None) -> str:
        if error is None:
            return ""
        digits = max(_digits(error["mean"]), _digits(20 * error["std"]) if error["std"] else 0)  # so that a spread is seen
        spread = "" if error["std"] is None else f" ± {error['std']:.{digits}f}"
        return f"{error['mean']:.{digits}f}{spread}" + (f" (x {ratio:.2f})" if ratio else "")

    rows = []
    for line in lines:
        errors = line["errors"]
        cells = [cell(errors.get(size), ratios.get((line["label"], int(size)))) for size in sizes] or [""]
        free = [key for key in errors if not key.isdigit()]
        if free:
            cells[0] = f"{cell(errors[free[0]])} whatever the mesh"
        rows.append([line["label"], counted(len(e["of_seed"]) for e in errors.values()), *cells])
    for curve, errors in summary["optimised"].items():
        seeds = counted(len(error["of_seed"]) for error in errors.values())
        rows.append([labelled(summary, curve) + OPTIMISED, seeds, *(cell(errors.get(size)) for size in sizes)])
    for label, errors in summary["references"].items():
        free = cell(errors.get("0"))
        rows.append([label, "", *([free, *[""] * (len(sizes) - 1)] if free else [cell(errors.get(k)) for k in sizes])])
    named = [known[int(size)] for size in sizes] or ["any mesh"]
    augmented = any(AUGMENTATION in line for line in lines)
    trained = [
        [
            line["label"],
            f"`{line['preset']}`",
            " ".join(f"`{setting}`" for setting in line["settings"]) if len({c["curve"] for c in line["cells"]}) == 1 else "",
            f"{line['num_weights']:,}" if line["num_weights"] else "",
            f"{line['steps']:,}",
            counted(round(cell["seconds"]) for cell in line["cells"]),
            counted(cell["threads"] for cell in line["cells"]),
            *([_told(line.get(AUGMENTATION))] if augmented else []),
        ]
        for line in lines
        if not line["also"]
    ]
    heads = ["curve", "preset", "settings", "weights", "steps", "seconds of training", "threads"]
    ratio = f", in brackets the ratio to {' or '.join(map(repr, baselines))} with the same seeds" if baselines else ""
    parts = [
        f"# {summary['experiment']}",
        f"{title_of(summary)}, from `{summary['houses']['data']}`; ± is the standard deviation over seeds{ratio}.",
        markdown(["curve", "seeds", *named], rows),
        markdown(heads + ["augmentation"] * augmented, trained),
    ]
    if summary["optimised"]:
        parts.insert(3, OPTIMISED_NOTE)
    if summary["finer"]:
        own = size_name(summary["beyond"], summary["beyond"] ** 2)
        parts += [
            f"Errors on finer meshes as multiples of the same network's at {own}: of the means over seeds, in brackets the 95 % "
            f"bootstrap interval over {summary['houses']['called']}, and those of every seed:",
            _multiples(summary),
        ]
    if summary["comparisons"]:
        parts += [
            f"Paired differences of the errors, of the seeds that both have, behind x their ratio, in brackets 95 % bootstrap "
            f"intervals over {summary['houses']['called']}, and in how many of these the first errs less:",
            _differences(summary),
        ]
    return "\n\n".join(parts) + "\n"


def labelled(summary: Summary, curve: str) -> str:
    """The label of a curve."""
    return next(line["label"] for line in summary["lines"] if curve in {cell["curve"] for cell in line["cells"]})


def _multiples(summary: Summary) -> str:
    """A row a curve and a column a mesh that is finer than the one they are compared with."""
    of_seed = {line["label"]: {key: error["of_seed"] for key, error in line["errors"].items()} for line in summary["lines"]}
    sizes = sorted({key for found in summary["finer"].values() for key in found}, key=int)

    def cell(label: str, size: str) -> str:
        if size not in summary["finer"][label]:
            return ""
        ratio, low, high = summary["finer"][label][size]
        errors, own = of_seed[label][size], of_seed[label][str(summary["beyond"])]
        seeds = ", ".join(f"{error / at:.3f}" for error, at in zip(errors, own, strict=True))
        return f"{ratio:.3f} ({low:.3f} to {high:.3f}); {seeds}"

    rows = [[label, *(cell(label, size) for size in sizes)] for label in summary["finer"]]
    return markdown(["curve", *(size_name(int(size), int(size) ** 2) for size in sizes)], rows)


def _differences(summary: Summary) -> str:
    """A row a mesh and a column a pair, or the other way round where there are more pairs than meshes."""
    found: dict[tuple[str, str], str] = {}
    names = {key: size_name(int(key), error["nodes"]) for line in summary["lines"] for key, error in _meshed(line["errors"])}
    for row in summary["comparisons"]:
        mesh = names.get(str(row["resolution"]), str(row["resolution"]))
        values = [f"{row[name]:+.{_digits(row['difference'])}f}" for name in ("difference", "low", "high")]
        ratio = "" if row["ratio"] is None else ", x {ratio:.2f} ({ratio_low:.2f} to {ratio_high:.2f})".format_map(row)
        text = "{} ({} to {})".format(*values) + ratio + f", less in {row['less']:.0%}"
        found[mesh, f"{row['ours']} - {row['theirs']}"] = text
    meshes, pairs = (list(dict.fromkeys(key[axis] for key in found)) for axis in (0, 1))
    if len(pairs) > len(meshes):
        return markdown(["pair", *meshes], [[pair, *(found.get((mesh, pair), "") for mesh in meshes)] for pair in pairs])
    return markdown(["nodes", *pairs], [[mesh, *(found.get((mesh, pair), "") for pair in pairs)] for mesh in meshes])


def _digits(value: float) -> int:
    """Three digits after the point, more for small values."""
    return next((digits for digits, least in ((3, 0.02), (4, 0.001), (5, 0.0002)) if abs(value) >= least), 6)


def counted(values: Iterable[int]) -> str:
    """A number, or the least and the greatest."""
    low, high = min(values := list(values)), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _told(value: Any) -> str:
    return "none" if not value else "on" if value is True else ", ".join(value) if isinstance(value, list) else str(value)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def write_results(folder: Path, summary: Mapping[str, Any], table: str, figures: Mapping[str, Figure | None]) -> None:
    """The summary, the table and the figures of an experiment; a figure that is None is taken away."""
    for name, text in (("summary.json", json.dumps(summary, indent=1) + "\n"), ("table.md", table)):
        with replaced(folder / name) as temporary:
            temporary.write_text(text)
    for name, figure in figures.items():
        if figure is None:
            (folder / name).unlink(missing_ok=True)
        else:
            with replaced(folder / name) as temporary:
                figure.savefig(temporary, dpi=DOTS)
