"""Plans to begin with: the paper's figures, and a tutorial that everybody has run."""

from __future__ import annotations

from dataclasses import dataclass

from dplateau.plan.batches import ADD_OR_REMOVE_ONE, Poisson
from dplateau.plan.plan import Plan
from dplateau.plan.schedules import Constant
from dplateau.report.comparison import example_settings

_TITLES = {
    "readme": "The plateau (50,000 records, Poisson batches)",
    "convex": "Paper, figure 1: convex losses",
    "cyclic": "Paper, figure 2: cyclic batches",
    "strongly_convex": "Paper, figure 3: strongly convex losses",
}
_NOTES = {
    "readme": "The setting of the README: endless training at a finite ε.",
    "convex": "Altschuler and Talwar 2022 draw this figure without numbers; these have its shape.",
    "cyclic": "The same records in the same order every epoch.",
    "strongly_convex": "A small penalty makes every step contract: the plateau comes sooner.",
}


@dataclass(frozen=True)
class Preset:
    """A plan with a name and a sentence about it."""

    name: str
    title: str
    note: str
    plan: Plan
    delta: float = 1e-6


def _opacus_mnist() -> Preset:
    # pytorch/opacus, examples/mnist_README.md: -n=15 --lr=.25 --sigma=1.3 -c=1.5 -sr=0.004
    return Preset(
        "opacus_mnist",
        "Opacus MNIST tutorial (a neural network)",
        "60,000 images, sampling rate 0.004, 15 epochs, σ = 1.3: the tutorial reports ε = 1.18. A "
        "neural network is not convex, so all steps add up. Tick “only the last model is "
        "released” and give a smoothness to see a convex model with the same numbers.",
        Plan(
            records=60_000,
            batches=Poisson(240),
            iterations=15 * 250,
            step_size=Constant(0.25),
            noise_multiplier=Constant(1.3),
            lipschitz=1.5,
            neighboring_relation=ADD_OR_REMOVE_ONE,
            hidden_state=False,
        ),
        1e-5,
    )


def _presets() -> tuple[Preset, ...]:
    settings = example_settings()
    figures = [Preset(name, _TITLES[name], _NOTES[name], settings[name]) for name in _TITLES]
    return (*figures, _opacus_mnist())


PRESETS = _presets()
