"""The public face: names, cheap import, the exception tree."""

import inspect
import subprocess
import sys

import pytest

import uatlite
from uatlite import errors

COMMANDS = {"evaluate", "load", "refine", "report"}
ENGINE = {"DropoutRates", "Samples", "UATConfig", "UATLiteError", "dropout_sites", "sample"}


def test_the_engine_and_what_commands_do_are_exported():
    assert set(uatlite.__all__) >= ENGINE | COMMANDS
    assert list(uatlite.__all__) == sorted(uatlite.__all__)


def test_every_export_loads_from_its_home():
    for name in uatlite.__all__:
        value = getattr(uatlite, name)
        assert value.__module__ == uatlite._HOME[name], name
        assert value.__doc__, name
    assert set(uatlite.__all__) <= set(dir(uatlite))


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'smaple'"):
        uatlite.smaple  # noqa: B018


def test_importing_the_package_imports_no_heavy_library():
    """Nor do the errors, the settings and the table of architectures, which a command line needs at once, nor metrics
    and the names of methods."""
    code = (
        "import sys, uatlite, uatlite.errors, uatlite.passes.config, uatlite.model.architectures, uatlite.metrics;"
        "import uatlite.methods; uatlite.methods.parse_method('uat:gate=k');"
        "heavy = {'torch', 'transformers', 'pandas', 'pyarrow', 'datasets', 'scipy', 'sklearn', 'matplotlib'};"
        "heavy &= set(sys.modules);"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_exception_tree():
    """As `errors.py` draws it; and what a caller may catch without knowing this package."""
    tree = {
        "UATLiteError": Exception,
        "ConfigurationError": (errors.UATLiteError, ValueError),
        "InputError": (errors.UATLiteError, ValueError),
        "ModelError": errors.UATLiteError,
        "NotAClassifier": errors.ModelError,
        "UnknownArchitecture": errors.ModelError,
        "DataError": errors.UATLiteError,
        "StoreError": errors.UATLiteError,
        "CalibrationError": errors.UATLiteError,
        "MissingDependency": (errors.UATLiteError, ImportError),
    }
    defined = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and value.__module__ == "uatlite.errors"
    }
    assert defined == set(tree)
    for name, parents in tree.items():
        bases = parents if isinstance(parents, tuple) else (parents,)
        assert getattr(errors, name).__bases__ == bases
        assert name in errors.__doc__


def test_messages():
    assert "pip install 'uatlite[data]'" in str(errors.MissingDependency("pyarrow", "data"))
    assert errors.nearest("stratifed", ["independent", "stratified"]) == " Did you mean 'stratified'?"
    assert errors.nearest("xyz", ["independent", "stratified"]) == ""
    errors.check_choice("gate", "q", ("q", "k"))
    with pytest.raises(errors.ConfigurationError, match=r"gate='x' is not one of: q, k\."):
        errors.check_choice("gate", "x", ("q", "k"))
