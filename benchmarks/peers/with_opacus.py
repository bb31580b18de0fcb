"""Opacus (Meta): its accountants, and DP-SGD on one `nn.Linear` with its own loader."""

import functools
import itertools
import time
import warnings

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.accountants import create_accountant
from opacus.accountants.utils import get_noise_multiplier
from protocol import Memory, serve, timed
from synthetic import rate, unit_rows, until_loss
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
torch.set_num_threads(1)  # two are slower for models this small


def epsilon(steps: int, sampling: float, noise: float, delta: float, method: str) -> dict:
    def upper_bound() -> float:
        accountant = create_accountant(method.lower())
        accountant.history = [(noise, sampling, steps)]
        return float(accountant.get_epsilon(delta))

    return timed(upper_bound)


def calibrate(steps: int, sampling: float, target: float, delta: float, method: str) -> dict:
    return timed(
        lambda: get_noise_multiplier(
            target_epsilon=target,
            target_delta=delta,
            sample_rate=sampling,
            steps=steps,
            accountant=method.lower(),
        )
    )


def _model(features: int, outputs: int) -> nn.Linear:
    model = nn.Linear(features, outputs)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


def _loss(outputs: int, regression: bool) -> nn.Module:
    if regression:
        return _Flat(nn.MSELoss)
    return nn.CrossEntropyLoss() if outputs > 1 else _Flat(nn.BCEWithLogitsLoss)


class _Flat(nn.Module):
    """One score per row against one target per row."""

    def __init__(self, loss: type) -> None:
        super().__init__()
        self.reduction, self.kind = "mean", loss

    def forward(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self.kind(reduction=self.reduction)(scores.squeeze(-1), targets)


class _Rows(TensorDataset):
    """Gathers a whole batch at once: the same rows as the default loader's, in a third of the time.

    For the accuracy benchmark only; speed is measured with the default loader.
    """

    def __getitems__(self, drawn: list[int]) -> list[int]:
        return drawn

    def of(self, drawn: list[int]) -> tuple[torch.Tensor, ...]:
        return tuple(tensor[drawn] for tensor in self.tensors)


def _private(model, loader, rate, clip, noise, mode, criterion):
    """Model, optimiser, loss and loader after `make_private`; ghost clipping has its own loss."""
    made = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=rate),
        data_loader=loader,
        noise_multiplier=noise,
        max_grad_norm=clip,
        grad_sample_mode=mode,
        criterion=criterion,
    )
    return made if mode == "ghost" else (made[0], made[1], criterion, made[2])


def fit(jobs: list[dict]) -> dict:
    """One model per job, see `_fit`; the test score of each."""
    return {"fits": [_fit(**job) for job in jobs]}


def _fit(
    data: str,
    outputs: int,
    regression: bool,
    epochs: float,
    batch: int,
    rate: float,
    clip: float,
    seed: int,
    target: float,
    delta: float,
    noise: float | None = None,
) -> dict:
    """Train by DP-SGD for a target epsilon (or with a given noise) and score on the test rows."""
    torch.manual_seed(seed)
    with np.load(data) as stored:
        arrays = {name: stored[name] for name in stored.files}
    X, y = torch.from_numpy(arrays["X_train"]), torch.from_numpy(arrays["y_train"])
    if outputs == 1:
        y = y.float()
    rows = _Rows(X, y)
    loader = DataLoader(rows, batch_size=batch, collate_fn=rows.of)
    steps = max(1, round(epochs * len(loader)))
    if noise is None:
        noise = _noise(target, delta, 1 / len(loader), steps)
    model, criterion = _model(X.shape[1], outputs), _loss(outputs, regression)
    # Ghost clipping takes the same steps and is faster where a gradient has many entries.
    mode = "ghost" if outputs > 1 and len(X) > 10_000 else "hooks"
    model, optimizer, criterion, loader = _private(
        model, loader, rate, clip, noise, mode, criterion
    )
    begin = time.perf_counter()
    for rows, targets in itertools.islice(_endless(loader), steps):
        _step(model, criterion, optimizer, rows, targets)
    seconds = time.perf_counter() - begin
    with torch.no_grad():
        scores = model(torch.from_numpy(arrays["X_test"])).numpy()
    measure = _score(scores, arrays["y_test"], regression)
    return {"measure": measure, "seconds": seconds, "noise": noise, "steps": steps}


@functools.cache
def _noise(target: float, delta: float, sampling: float, steps: int) -> float:
    """Opacus' own calibration, by its default accountant (PRV), or RDP where that one fails."""
    for accountant in ("prv", "rdp"):
        try:
            return get_noise_multiplier(
                target_epsilon=target,
                target_delta=delta,
                sample_rate=sampling,
                steps=steps,
                accountant=accountant,
                epsilon_tolerance=target / 100,
            )
        except Exception:
            if accountant == "rdp":
                raise
    raise AssertionError


def _endless(loader):
    while True:
        yield from loader


def _step(model, criterion, optimizer, rows, targets) -> None:
    optimizer.zero_grad()
    scores = model(rows)
    # An empty Poisson batch is a step of pure noise.
    (criterion(scores, targets) if len(rows) else scores.sum()).backward()
    optimizer.step()


def _score(scores: np.ndarray, truth: np.ndarray, regression: bool) -> float:
    """Accuracy, or R squared."""
    if regression:
        return float(1 - np.mean((scores[:, 0] - truth) ** 2) / np.var(truth))
    guess = scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
    return float(np.mean(guess == truth))


def speed(records: int, features: int, outputs: int, batch: int, seconds: float, mode: str) -> dict:
    """Steps per second, its own loader included, and the memory that training adds."""
    rows, labels = unit_rows(records, features, outputs)
    X = torch.from_numpy(rows)
    y = torch.from_numpy(labels if outputs > 1 else labels.astype(np.float32))
    memory = Memory()
    loader = DataLoader(TensorDataset(X, y), batch_size=batch)
    criterion = _loss(outputs, regression=False)
    model, optimizer, criterion, loader = _private(
        _model(features, outputs), loader, 0.1, 1.0, 1.0, mode, criterion
    )
    batches = _endless(loader)

    def advance(steps: int) -> None:
        for drawn, targets in itertools.islice(batches, steps):
            _step(model, criterion, optimizer, drawn, targets)

    advance(3)
    return {**rate(advance, seconds), "added_memory_mib": memory.added_mib()}


def time_to_loss(data: str, outputs: int, batch: int, step_size: float, target: float) -> dict:
    """Seconds of the shortest run, among doubled lengths, whose training loss meets the target."""
    with np.load(data) as stored:
        rows, labels = stored["X_train"], stored["y_train"]
    X, y = torch.from_numpy(rows), torch.from_numpy(labels)
    kind = "ghost" if outputs > 1 else "hooks"

    def train(steps: int) -> np.ndarray:
        torch.manual_seed(0)
        model = nn.Linear(X.shape[1], outputs, bias=False)
        nn.init.zeros_(model.weight)
        model, optimizer, criterion, loader = _private(
            model,
            DataLoader(TensorDataset(X, y), batch_size=batch),
            step_size,
            2**0.5 if outputs > 1 else 1.0,
            1.0,
            kind,
            _loss(outputs, regression=False),
        )
        for drawn, targets in itertools.islice(_endless(loader), steps):
            _step(model, criterion, optimizer, drawn, targets)
        return next(model.parameters()).detach().numpy().T

    return until_loss(train, rows, labels, target)


if __name__ == "__main__":
    serve(
        {
            "epsilon": epsilon,
            "calibrate": calibrate,
            "fit": fit,
            "speed": speed,
            "time_to_loss": time_to_loss,
        },
        ("opacus", "torch"),
    )
