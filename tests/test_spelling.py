"""Settings as 'a=1,b=2' and back, of any frozen dataclass."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uatlite.codec import NOT_STORED
from uatlite.errors import ConfigurationError
from uatlite.spelling import change, inner_settings, parse_spelling, setting_names, spelling


@dataclass(frozen=True)
class Rates:
    first: float | None = 0.1
    second: float | None = None


@dataclass(frozen=True)
class Setup:
    rates: Rates = field(default_factory=Rates, metadata=inner_settings(every="rate", none="own"))
    passes: int = 10
    penalty: float = 0.5
    limit: int | None = None
    shared: bool = False
    word: str = "q"
    seed: int = field(default=0, metadata=NOT_STORED)


setups = st.builds(
    Setup,
    rates=st.builds(Rates, first=st.none() | st.floats(0, 1), second=st.none() | st.floats(0, 1)),
    passes=st.integers(),
    penalty=st.floats(allow_nan=False),
    limit=st.none() | st.integers(),
    shared=st.booleans(),
    word=st.text("abc", min_size=1),
)


@given(setups)
def test_a_spelling_leads_back_to_its_value(setup):
    for standard in (Setup(), None):
        name, settings = parse_spelling(spelling("setup", setup, standard))
        assert name == "setup"
        assert change(Setup(), settings, "setup") == setup


@pytest.mark.parametrize(
    ("setup", "spelt"),
    [
        (Setup(), "setup"),
        (Setup(seed=4), "setup"),
        (Setup(passes=3, shared=True), "setup:passes=3,shared=true"),
        (Setup(Rates(0.2, 0.3), word="k"), "setup:word=k,first=0.2,second=0.3"),
        (Setup(Rates(0.2, 0.2), word="k"), "setup:word=k,rate=0.2"),
        (Setup(Rates(None, None), limit=2), "setup:limit=2,first=own"),  # the second is None as it was
    ],
)
def test_only_what_differs_is_spelt(setup, spelt):
    assert spelling("setup", setup, Setup()) == spelt


def test_a_word_sets_all_and_a_name_beside_it_wins():
    assert change(Setup(), {"second": "0.4", "rate": "own"}, "it").rates == Rates(None, 0.4)
    assert setting_names(Setup()) == ("passes", "penalty", "limit", "shared", "word", "rate", "first", "second")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"passes": "x"}, "passes='x' is not a whole number."),
        ({"limit": "x"}, "limit='x' is not a whole number or 'none'."),
        ({"rate": "none"}, "rate='none' is not a number or 'own'."),
        ({"penalty": "none"}, "penalty='none' is not a number."),
        ({"shared": "1"}, "shared='1' is not true or false."),
        ({"wrd": "k"}, "Did you mean 'word'?"),
        ({"seed": "1"}, "it: the seed is not a setting of a method"),
        ({"rates": "1"}, "it has no setting 'rates'"),
    ],
)
def test_a_bad_setting_is_named(settings, message):
    with pytest.raises(ConfigurationError) as raised:
        change(Setup(), settings, "it")
    assert message in str(raised.value)
    with pytest.raises(ConfigurationError, match="it has no setting 'passes'; it has word"):
        change(Setup(), {"passes": "3"}, "it", allowed=["word"])


@pytest.mark.parametrize("text", ["uat:gate", "uat:=k", "uat:gate=", "uat:,", "uat:gate=k,gate=q"])
def test_what_is_no_setting_is_refused(text):
    with pytest.raises(ConfigurationError, match=r"is not a setting|sets 'gate' twice"):
        parse_spelling(text)
