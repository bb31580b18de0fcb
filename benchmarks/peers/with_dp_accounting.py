"""dp_accounting (Google): RDP with its default orders, PLD with its default grid.

Runs in our own environment: dp_accounting is what dplateau builds on.
"""

import dp_accounting
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from protocol import serve, timed

MAKERS = {"RDP": RdpAccountant, "PLD": PLDAccountant}


def event(steps: int, sampling: float, noise: float) -> dp_accounting.DpEvent:
    one = dp_accounting.GaussianDpEvent(noise)
    if sampling < 1:
        one = dp_accounting.PoissonSampledDpEvent(sampling, one)
    return dp_accounting.SelfComposedDpEvent(one, steps)


def epsilon(steps: int, sampling: float, noise: float, delta: float, method: str) -> dict:
    def upper_bound() -> float:
        accountant = MAKERS[method]()
        return accountant.compose(event(steps, sampling, noise)).get_epsilon(delta)

    return timed(upper_bound)


def calibrate(steps: int, sampling: float, target: float, delta: float, method: str) -> dict:
    return timed(
        lambda: dp_accounting.calibrate_dp_mechanism(
            MAKERS[method], lambda noise: event(steps, sampling, noise), target, delta
        )
    )


if __name__ == "__main__":
    serve({"epsilon": epsilon, "calibrate": calibrate}, ("dp-accounting",))
