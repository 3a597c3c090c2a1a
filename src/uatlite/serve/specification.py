"""What OpenAPI says beyond the types: the limits of this very service, and its token."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from uatlite.serve.limits import Limits
from uatlite.serve.protection import OPEN


def describe(api: FastAPI, limits: Limits, *, secured: bool) -> None:
    """Let the specification of an application state its limits."""
    made: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not made:
            made.update(
                get_openapi(title=api.title, version=api.version, description=api.description, routes=api.routes)
            )
            _bound(made["components"]["schemas"], limits)
            if secured:
                _secure(made)
        return made

    api.openapi = openapi  # type: ignore[method-assign]  # how FastAPI says to extend it


def _bound(schemas: dict[str, Any], limits: Limits) -> None:
    texts = schemas["PredictRequest"]["properties"]["texts"]
    texts["maxItems"] = limits.texts
    one = schemas["ExplainRequest"]["properties"]["text"]
    for kinds, most in ((texts["items"]["oneOf"], limits.characters), (one["oneOf"], limits.explained)):
        for kind in kinds:
            if kind.get("type") == "string":
                kind |= {"minLength": 1, "maxLength": most}


def _secure(specification: dict[str, Any]) -> None:
    specification["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, methods in specification["paths"].items():
        if path not in OPEN:
            for operation in methods.values():
                operation["security"] = [{"token": []}]
