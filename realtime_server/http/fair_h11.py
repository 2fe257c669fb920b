"""uvicorn's HTTP protocol, for clients that may do anything.

- A body in tiny chunks does not hold up everybody else: h11 makes an event of each chunk, some 30 µs; one read from a
  socket may bring forty thousand of them. So what is read is given to it in pieces, and the event loop serves others
  between two of them. A body with a length is one event a read, and passes as it is.
- The head of a request must come within `head_s`, from when the connection was made or the answer before was sent. (A
  body has its own limit, see forms.py.)
- A client may end its side of the connection when its request is complete, and still gets its answer. One that has
  left altogether looks the same at first: it is sent "100 Continue", which is no answer and may come unasked; the
  machine of one that has left resets the connection at that, which is looked for every LOOK_S. Who cannot be asked,
  because he speaks HTTP/1.0 or has the beginning of his answer, is taken to have left.
"""

from __future__ import annotations

import asyncio
import socket
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from realtime_server.doors.crowds import TELLING_S, Stay
from realtime_server.http.errors import RequestError, explain
from realtime_server.realtime.reception import Reception

PIECE = 4096  # bytes
HEAD_S = 20.0
LOOK_S = 0.25
LEAVING_S = 1.0  # for who is refused to read it: what he still sends meanwhile must not reset the connection
TCP_INFO = getattr(socket, "TCP_INFO", None)  # Linux has it
TCP_CLOSE = 7  # its first byte once the connection is no more


class FairH11(H11Protocol):
    """An HTTP connection; reads no more while it has pieces left.

    stay: another protocol, once it has taken this one's place, releases it at the end.
    """

    head_s = HEAD_S

    def __init__(self, *, reception: Reception, **options: Any) -> None:  # uvicorn's
        super().__init__(**options)
        self._reception, self.stay = reception, Stay()
        self._ending: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        self.flow = self._pausing = _Flow(transport)
        self._pieces = bytearray()
        self._half_closed = False  # the client sends no more
        self._refused = False
        self._head_timer: asyncio.TimerHandle | None = None
        self.stay = self._reception.receive_connection(transport)
        if self.stay.cut:
            transport.abort()
        elif self.stay.error:
            self.head_s = min(self.head_s, TELLING_S)
        self._time_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_timing()
        self.stay.release()
        if self._ending:
            self._ending.cancel()
        super().connection_lost(exc)

    # --- pieces -------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take what was read, at once or in turns."""
        if self._refused:
            return
        if self.stay.error:
            self._refuse(explain(self.stay.error))
            return
        if not self._pieces and (len(data) <= PIECE or self._has_length()):
            super().data_received(data)
            return
        begins = not self._pieces
        self._pieces += data
        if begins:
            self._pausing.hold()
            self._take_piece()

    def _take_piece(self) -> None:
        if self._is_over():
            self._pieces.clear()
        else:
            piece = bytes(self._pieces[:PIECE])
            del self._pieces[:PIECE]
            super().data_received(piece)
        if self._pieces:
            self.loop.call_soon(self._take_piece)
        else:
            self._pausing.let_go()

    def _has_length(self) -> bool:
        """Whether the rest of a body comes whose length was told."""
        in_body = self.conn.their_state is h11.SEND_BODY
        return in_body and all(name != b"transfer-encoding" for name, _ in self.headers)

    def _is_over(self) -> bool:
        """Whether nothing is read here any more: the connection is closed or refused, or a WebSocket's."""
        others = self.transport.get_protocol() is not self
        return self._refused or self.transport.is_closing() or others

    # --- the head -----------------------------------------------------------------------------------------

    def handle_events(self) -> None:
        """Go on with what was read."""
        super().handle_events()
        self._time_head()

    def _time_head(self) -> None:
        """Let the time run as long as the head of a request is awaited."""
        if self._is_over() or self.conn.their_state is not h11.IDLE:
            self._stop_timing()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_s, self._give_up)

    def _stop_timing(self) -> None:
        if self._head_timer:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        begun = bool(self.conn.trailing_data[0])
        if begun and not self._is_over():
            words = f"the head of the request did not come within {self.head_s:g} s"
            self._refuse(RequestError(words, HTTPStatus.REQUEST_TIMEOUT, code="timeout"))
        else:  # nobody has asked for anything
            self._close()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self._refuse(RequestError("this is no HTTP request that can be understood"))

    def _refuse(self, error: RequestError) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else an answer has begun
            response = error.response
            headers = [*response.raw_headers, (b"connection", b"close")]
            for event in (
                h11.Response(status_code=response.status_code, headers=headers),
                h11.Data(data=bytes(response.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self._refused = True
        if self.cycle:  # a request is at work whose body went wrong: for the application, its client has left
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.loop.call_later(LEAVING_S, self.transport.close)
        else:
            self._close()

    def _close(self) -> None:
        """Close; cut off who does not answer the goodbye of TLS soon."""
        self._ending = self.loop.call_later(LEAVING_S, self.transport.abort)
        self.transport.close()

    # --- a client that sends no more ----------------------------------------------------------------------

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Keep the connection for the answer to a request that has come whole."""
        whole = self.conn.their_state in (h11.DONE, h11.MUST_CLOSE)
        can_ask = self.conn.our_state is h11.SEND_RESPONSE and self.conn.their_http_version == b"1.1"
        secured = self.transport.get_extra_info("sslcontext") is not None  # it cannot be closed by half
        if secured or not (whole and can_ask and TCP_INFO):
            return None
        self._half_closed = True
        self.transport.write(self.conn.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        self._look()
        return True

    def _look(self) -> None:
        """Notice that the client has left altogether."""
        if self._is_over():
            return
        if _is_reset(self.transport.get_extra_info("socket")):
            self.transport.abort()
        else:
            self.loop.call_later(LOOK_S, self._look)

    def on_response_complete(self) -> None:
        """Go on with the connection's next request, if one can come."""
        super().on_response_complete()
        if self._half_closed and self.cycle.response_complete:
            self.transport.close()


def _is_reset(connection: socket.socket) -> bool:
    assert TCP_INFO
    return connection.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 1)[0] == TCP_CLOSE


class _Flow(FlowControl):
    """Reading goes on only when both the application and the connection want it."""

    _held = False

    def hold(self) -> None:
        self._held = True
        self._transport.pause_reading()

    def let_go(self) -> None:
        self._held = False
        if not self.read_paused and not self._transport.is_closing():
            self._transport.resume_reading()

    def resume_reading(self) -> None:
        if self._held:
            self.read_paused = False
        else:
            super().resume_reading()
