"""Bodies of bounded size and time, also those that come in pieces and do not say how long they are."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from uatlite.serve.refusals import Refusal, answer


class BoundedBodies:
    """Reads a body before the application does, and refuses it once it is larger or slower than allowed."""

    def __init__(self, app: ASGIApp, *, most: int, seconds: float) -> None:
        self._app = app
        self._most = most
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._seconds):
                body = await self._read(scope, receive)
        except TimeoutError:
            await answer(Refusal(408, headers={"Connection": "close"}))(scope, receive, send)
            return
        except Refusal as refusal:
            await answer(refusal)(scope, receive, send)
            return
        if body is not None:
            await self._app(scope, _replay(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body; None where the client has gone."""
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not declared.isdigit() or int(declared) > self._most:
            raise self._too_large()
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > self._most:
                raise self._too_large()
            if not message.get("more_body", False):
                return bytes(body)

    def _too_large(self) -> Refusal:
        message = f"The body is larger than the {self._most:,} bytes that this service takes."
        return Refusal(413, message, headers={"Connection": "close"})


def _replay(body: bytes, receive: Receive) -> Receive:
    """A channel that gives the body once, and then what the client does next, which is to leave."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
