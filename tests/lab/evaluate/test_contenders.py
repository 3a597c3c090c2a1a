"""Spellings of contenders: a method, a calibrator on it or alone, and lists of them."""

import pytest

from uatlite.errors import ConfigurationError
from uatlite.lab.evaluate.plan import parse_contender, parse_contenders


@pytest.mark.parametrize(
    ("spelt", "method", "calibrator", "canonical"),
    [
        ("base", "base", "none", "base"),
        ("ts", "base", "temperature", "base+ts"),
        ("isotonic", "base", "isotonic", "base+isotonic"),
        ("uat+ts", "uat", "temperature", "uat+ts"),
        ("mc+temperature", "mc-uniform", "temperature", "mc-uniform+ts"),
        ("uat:gate=k,penalty=1.0+platt", "uat:penalty=1.0,gate=k", "platt", "uat:penalty=1.0,gate=k+platt"),
        ("uat:uncertainty=cv+ln", "uat:uncertainty=cv+ln", "none", "uat:uncertainty=cv+ln"),
        ("uat:uncertainty=cv+ln+ts", "uat:uncertainty=cv+ln", "temperature", "uat:uncertainty=cv+ln+ts"),
        ("analytic+its", "analytic", "input-temperature", "analytic+its"),
        ("uat+none", "uat", "none", "uat"),
    ],
)
def test_a_contender_is_a_method_and_a_calibrator(spelt: str, method: str, calibrator: str, canonical: str) -> None:
    contender = parse_contender(spelt)
    assert (contender.method.name, contender.calibrator, contender.name) == (method, calibrator, canonical)
    assert parse_contender(canonical) == contender


def test_a_list_keeps_the_commas_of_settings_and_drops_repetitions() -> None:
    found = parse_contenders("base, ts,uat:gate=k,penalty=1.0+ts,mc,mc-uniform")
    assert [contender.name for contender in found] == ["base", "base+ts", "uat:penalty=1.0,gate=k+ts", "mc-uniform"]


@pytest.mark.parametrize(
    ("spelt", "message"),
    [
        ("uat+tz", r"There is no calibrator 'tz' \(in 'uat\+tz'\).*Did you mean 'ts'"),
        ("uta+ts", "There is no method 'uta'.*Did you mean 'uat'"),
        ("base+its", "needs the margin's variance.*base runs one pass"),
        ("uat:samples=1+its", "needs the margin's variance"),
        (" , ", "names no method"),
    ],
)
def test_misspellings_are_explained(spelt: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_contenders(spelt)
