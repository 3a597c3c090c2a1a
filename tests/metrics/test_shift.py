"""The two scores over an in-domain and a shifted set."""

import pytest

from uatlite.metrics.calibration import delta_ece, ece, robustness_score


def test_the_two_scores_by_their_definition(smooth_case, tied_case) -> None:
    pair = (*smooth_case, *tied_case)
    in_domain, shifted = ece(*smooth_case), ece(*tied_case)
    assert delta_ece(*pair) == pytest.approx(shifted - in_domain)
    assert robustness_score(*pair) == pytest.approx((shifted + in_domain) / 2)
    assert delta_ece(*smooth_case, *smooth_case) == 0
