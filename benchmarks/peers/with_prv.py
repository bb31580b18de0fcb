"""prv_accountant (Gopi, Lee, Wutschitz 2021): numerical composition by FFT."""

from protocol import serve, timed
from prv_accountant.dpsgd import DPSGDAccountant, find_noise_multiplier


def epsilon(steps: int, sampling: float, noise: float, delta: float, method: str) -> dict:
    def upper_bound() -> float:
        accountant = DPSGDAccountant(
            noise, sampling, max_steps=steps, eps_error=0.01, delta_error=delta / 1000
        )
        return accountant.compute_epsilon(delta, steps)[2]

    return timed(upper_bound)


def calibrate(steps: int, sampling: float, target: float, delta: float, method: str) -> dict:
    return timed(
        lambda: find_noise_multiplier(sampling, steps, target, delta, eps_error=0.01, mu_max=1e7)
    )


if __name__ == "__main__":
    serve({"epsilon": epsilon, "calibrate": calibrate}, ("prv-accountant",))
