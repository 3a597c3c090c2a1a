"""The product that a model is for, by what the model answers: commands, scoring and serving need not be told."""

from pathlib import Path
from typing import Any

from uatlite.classifier.answer_kind import KINDS
from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.classifier.exported import is_exported, read_manifest
from uatlite.classifier.labeler import UncertaintyLabeler
from uatlite.classifier.tagger import UncertaintyTagger
from uatlite.errors import MissingDependency, ModelError
from uatlite.values import Kind

AnyProduct = UncertaintyClassifier | UncertaintyLabeler | UncertaintyTagger
"""Each of them is a `Product`; they differ in what calibrating is asked for and in what predictions hold."""

PRODUCTS: tuple[type[AnyProduct], ...] = (UncertaintyClassifier, UncertaintyLabeler, UncertaintyTagger)
"""Each says in `answers` which models it is for."""


def load_product(name: str | Path, **options: Any) -> AnyProduct:
    """The product in a directory or under a hub id; `options` are those of `Product.from_pretrained`."""
    return product_class(name).from_pretrained(name, **options)


def product_class(name: str | Path) -> type[AnyProduct]:
    """The product that a model is for, by its configuration alone."""
    kind = read_manifest(name).kind if is_exported(name) else _answering(name)
    found = next((product for product in PRODUCTS if KINDS[kind] in product.kinds), None)
    if found is None:
        known = ", ".join(
            f"{product.__name__} ({', '.join(kind.name for kind in product.kinds)})" for product in PRODUCTS
        )
        raise ModelError(f"{name} answers by {kind!r}, and there is no product for that; there are {known}.")
    return found


def _answering(name: str | Path) -> Kind:
    try:
        from uatlite.model.load import answering_of
    except ModuleNotFoundError as error:
        raise MissingDependency(str(error.name), "torch") from error
    return answering_of(name)
