"""Transcripts of calls by HTTP: each message is POSTed to one address, in order, until it is accepted.

A message is sent again, with the same Idempotency-Key, until the receiver answers 2xx; between two tries is a pause,
which doubles. An answer that will not change (4xx but 408, 425, 429; a redirection) ends the tries for that message.
Calls do not wait for each other, and none waits for its receiver.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPException
from typing import Any

from realtime_server.http.options import Webhook
from realtime_server.http.threads import in_thread

logger = logging.getLogger(__name__)

WANTED = frozenset({"sentence", "speakers", "final"})  # messages that are sent
AGAIN = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)


class RefusedError(Exception):
    """The receiver does not want a message, and will not."""


class UnansweredError(Exception):
    """The receiver did not accept a message this time."""


class Delivery:
    """The messages of one call to its webhook. about: what of the call is put in each of them."""

    def __init__(self, webhook: Webhook, about: Mapping[str, Any]) -> None:
        self._webhook, self._about = webhook, about
        self._waiting: deque[Mapping[str, Any]] = deque()
        self._news = asyncio.Event()
        self._clock = asyncio.get_running_loop().time
        self._finished, self._last_s = False, math.inf  # for a try
        self._dropped = 0

    def put(self, message: Mapping[str, Any]) -> None:
        """Send a message, behind those before."""
        if message["type"] not in WANTED:
            return
        if len(self._waiting) >= self._webhook.most_waiting:
            self._drop(self._waiting.popleft(), "too many wait")
        self._waiting.append(message)
        self._news.set()

    def finish(self) -> None:
        """No more will come."""
        self._finished, self._last_s = True, self._clock() + self._webhook.patience_s
        self._news.set()

    async def run(self) -> None:
        """Send until all is sent after `finish`, or patience ends."""
        try:
            while self._waiting or not self._finished:
                if self._waiting and self._clock() > self._last_s:
                    self._drop(self._waiting.popleft(), "it took too long")
                elif self._waiting:
                    await self._deliver(self._waiting.popleft())
                else:
                    self._news.clear()
                    await self._news.wait()
        except asyncio.CancelledError:
            logger.error("the server ended before %s had taken a call's transcript", self._webhook.place)
            raise
        finally:
            if self._dropped:
                logger.error("%d messages of a call were not delivered", self._dropped)

    async def _deliver(self, message: Mapping[str, Any]) -> None:
        """Try until it is accepted or given up."""
        webhook, begun_s, pause_s = self._webhook, self._clock(), self._webhook.pause_s
        request = _make_request(webhook, message, self._about)
        while True:
            try:
                async with asyncio.timeout(webhook.timeout_s):  # of the whole; the socket's is for each part
                    await in_thread("webhook", lambda: _post(request, webhook.timeout_s))
                return
            except RefusedError as error:
                self._drop(message, str(error))
                return
            except (UnansweredError, TimeoutError) as error:
                why = str(error) or f"no answer within {webhook.timeout_s:g} s"
            if self._clock() + pause_s > min(begun_s + webhook.patience_s, self._last_s):
                self._drop(message, why)
                return
            logger.info("%s: %s; trying again in %g s", webhook.place, why, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, webhook.longest_pause_s)

    def _drop(self, message: Mapping[str, Any], why: str) -> None:
        if not self._dropped:
            about = (self._webhook.place, message["type"], message["session"], message["seq"], why)
            logger.error("%s did not take the %s %s-%d: %s", *about)
        self._dropped += 1


def _make_request(
    webhook: Webhook, message: Mapping[str, Any], about: Mapping[str, Any]
) -> urllib.request.Request:
    headers = {
        "Content-Type": "application/json",
        "Idempotency-Key": f"{message['session']}-{message['seq']}",
        "User-Agent": "realtime-server",
    }
    if webhook.token:
        headers["Authorization"] = f"Bearer {webhook.token}"
    body = json.dumps({**message, "call": about}, ensure_ascii=False).encode()
    return urllib.request.Request(webhook.url, body, headers, method="POST")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Redirections are answers like others: the token is for one address."""

    def redirect_request(self, *unused: Any) -> None:
        """Return nothing to follow."""


_OPENER = urllib.request.build_opener(_NoRedirect)


def _post(request: urllib.request.Request, timeout_s: float) -> None:
    """Send once. Raises RefusedError and UnansweredError."""
    try:
        with _OPENER.open(request, timeout=timeout_s) as answer:
            answer.read(1)
    except urllib.error.HTTPError as error:
        with error:
            final = error.code < HTTPStatus.INTERNAL_SERVER_ERROR and error.code not in AGAIN
            raise (RefusedError if final else UnansweredError)(f"it answers {error.code}") from None
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        why = getattr(reason, "strerror", None) or type(reason).__name__
        raise UnansweredError(f"it cannot be reached ({why})") from error
