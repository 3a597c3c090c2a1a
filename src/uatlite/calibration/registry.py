"""The calibrators by name."""

from typing import Any

from uatlite.calibration.auto import SIMPLEST_FIRST, Auto
from uatlite.calibration.calibrator import Calibrator
from uatlite.errors import CalibrationError, check_choice

CALIBRATORS: dict[str, type[Calibrator]] = {**SIMPLEST_FIRST, "auto": Auto}


def make_calibrator(name: str) -> Calibrator:
    """A new, unfitted calibrator with its default settings."""
    check_choice("calibrator", name, CALIBRATORS)
    return CALIBRATORS[name]()


def calibrator_from_dict(state: dict[str, Any]) -> Calibrator:
    """The fitted calibrator that `to_dict` described, whichever it is."""
    name = state.get("calibrator")
    if name not in CALIBRATORS:
        known = ", ".join(CALIBRATORS)
        raise CalibrationError(f"the stored calibrator {name!r} is not one of: {known}; calibrate again.")
    try:
        return CALIBRATORS[name].from_dict(state)
    except (KeyError, TypeError, ValueError) as error:
        raise CalibrationError(f"the stored calibrator {name!r} is broken ({error!r}); calibrate again.") from error
