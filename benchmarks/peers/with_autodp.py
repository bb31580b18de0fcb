"""autodp (Wang, Balle, Kasiviswanathan and others): analytical RDP of the subsampled Gaussian."""

from autodp.calibrator_zoo import eps_delta_calibrator
from autodp.mechanism_zoo import NoisySGD_Mechanism
from protocol import serve, timed


def epsilon(steps: int, sampling: float, noise: float, delta: float, method: str) -> dict:
    return timed(lambda: NoisySGD_Mechanism(sampling, noise, steps).get_approxDP(delta))


def calibrate(steps: int, sampling: float, target: float, delta: float, method: str) -> dict:
    # autodp wants a bracket for the noise from its caller: a generous one around the order of
    # magnitude that the central limit theorem suggests.
    scale = max(1.0, sampling * steps**0.5)

    def least_noise() -> float:
        class Mechanism(NoisySGD_Mechanism):
            def __init__(self, sigma: float, name: str = "NoisySGD") -> None:
                super().__init__(sampling, sigma, steps)

        found = eps_delta_calibrator()(Mechanism, target, delta, [0.3, 100 * scale])
        return found.params["sigma"]

    return timed(least_noise)


if __name__ == "__main__":
    serve({"epsilon": epsilon, "calibrate": calibrate}, ("autodp",))
