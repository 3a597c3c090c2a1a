"""Requests drawn from the service's own OpenAPI, good and bad: no answer is a 500, and each is one it describes."""

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from serve.clients import running

EXAMPLES = 30
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
ADDRESSES = {"/predict", "/explain", "/health", "/ready", "/model", "/metrics"}


@pytest.mark.parametrize("mode", [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE])
@pytest.mark.parametrize("product", ["classifier", "labeler", "tagger"])
def test_requests_drawn_from_the_specification(mode, product, request):
    with running(request.getfixturevalue(product)) as address:
        specification = httpx.get(f"{address}/openapi.json", trust_env=False).json()
        schema = schemathesis.openapi.from_dict(specification)
        operations = [result.ok() for result in schema.get_all_operations()]
        assert {operation.path for operation in operations} == ADDRESSES
        for operation in operations:
            if mode == schemathesis.GenerationMode.POSITIVE or operation.method == "post":
                _try(operation.as_strategy(generation_mode=mode), address)


def _try(cases, address):
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def requests(case):
        case.call_and_validate(base_url=address, checks=CHECKS)

    requests()
