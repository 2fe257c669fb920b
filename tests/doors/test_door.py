"""The door: every reason for which somebody is not let in, in the order in which they are looked at."""

from __future__ import annotations

import logging

import pytest

from realtime_server.doors.door import Door, DoorOptions, Pass
from realtime_server.doors.session_tokens import Minted, Wish
from realtime_server.doors.tokens import RIGHTS, Right, Token
from realtime_server.doors.visitors import Visitor
from realtime_server.errors import AdmissionError, ConfigurationError, FieldError
from tests.doors.test_rates import Clock

LONG, VIEWER, TWO = "a-long-token-for-all", "a-long-token-for-viewers", "a-long-token-for-two"
TOKENS = (
    Token.of("all", LONG),
    Token.of("viewer", VIEWER, rights=frozenset({"view"})),
    Token.of("two", TWO, max_sessions=2),
)
OPTIONS = DoorOptions(tokens=TOKENS)
VISITOR = Visitor("192.0.2.1", hosts=("talk.example",))


def bearing(token: str, address: str = "192.0.2.1") -> Visitor:
    return Visitor(address, (f"Bearer {token}",))


def refused(door: Door, visitor: Visitor, **asked: str) -> AdmissionError:
    with pytest.raises(AdmissionError) as error:
        door.admit(visitor, asked.get("right", "transcribe"), asked.get("session"))  # type: ignore[arg-type]
    return error.value


@pytest.mark.parametrize("proxies", [0, 1])
def test_a_connection_is_counted_once_when_its_sender_is_known(proxies: int) -> None:
    door = Door(DoorOptions(connections=1, proxies=proxies))
    visitor = Visitor("192.0.2.9", forwarded=("192.0.2.1",))
    elsewhere = Visitor("192.0.2.9", forwarded=("192.0.2.2",))
    for who, full in ((visitor, False), (visitor, True), (elsewhere, not proxies)):
        by_address, by_headers = door.arrive_by_address(who), door.arrive_by_headers(who)
        assert (by_headers is None) == (not proxies)
        assert bool(by_address.error) == (full and not proxies)
        assert bool(by_headers and by_headers.error) == (full and bool(proxies))


def mint(door: Door, visitor: Visitor, wish: Wish) -> Minted:
    return door.mint(door.find_maker(visitor), wish)


def test_without_tokens_everybody_comes_in() -> None:
    door = Door()
    assert not door.token_needed
    for visitor in (Visitor("192.0.2.1", hosts=("localhost",)), bearing("none"), Visitor()):
        assert door.admit(visitor, "metrics") == Pass()
    with door.take_place(Pass()):
        pass


def test_without_tokens_nobody_comes_in_by_a_name_that_its_owner_pointed_here() -> None:
    error = refused(Door(), Visitor("127.0.0.1", hosts=("evil.example:8899",)), right="view", session="a")
    assert (error.reason, error.status) == ("origin", 403)
    assert "asked for as localhost or by its address" in str(error)
    assert "evil" not in str(error)


@pytest.mark.parametrize(
    ("visitor", "reason", "status", "challenge"),
    [
        (VISITOR, "no_token", 401, 'Bearer realm="realtime-server"'),
        (Visitor(query="token="), "no_token", 401, 'Bearer realm="realtime-server"'),
        (bearing("wrong"), "bad_token", 401, 'Bearer realm="realtime-server", error="invalid_token"'),
        (bearing("rts.wrong"), "bad_token", 401, 'Bearer realm="realtime-server", error="invalid_token"'),
        (bearing("rts." + "x" * 4000), "bad_token", 401, 'Bearer realm="realtime-server", error="invalid_token"'),
        (bearing(VIEWER), "right", 403, None),
    ],
)  # fmt: skip
def test_tokens_are_looked_at(visitor: Visitor, reason: str, status: int, challenge: str | None) -> None:
    error = refused(Door(OPTIONS), visitor)
    assert (error.reason, error.status, error.headers.get("WWW-Authenticate")) == (reason, status, challenge)
    assert "wrong" not in str(error)


def test_a_good_token_comes_in() -> None:
    door = Door(OPTIONS)
    assert door.token_needed
    assert door.admit(bearing(LONG), "metrics") == Pass("all", RIGHTS)
    assert door.admit(Visitor(query=f"token={TWO}"), "transcribe") == Pass("two", RIGHTS, 2)
    assert door.admit(bearing(VIEWER), "view", "abc").name == "viewer"
    assert door.recognise(LONG, "transcribe").name == "all"


def test_pages_from_elsewhere_are_refused_before_their_token_is_looked_at() -> None:
    door = Door(DoorOptions(tokens=TOKENS, origins=("https://listed.example",)))
    for origin, let_in in (
        ("https://listed.example", 1),
        ("https://talk.example", 1),
        ("https://evil.example", 0),
    ):
        visitor = Visitor("192.0.2.1", (f"Bearer {LONG}",), (origin,), ("talk.example",))
        if let_in:
            assert door.admit(visitor, "transcribe").name == "all"
        else:
            error = refused(door, visitor)
            assert (error.reason, error.status, error.headers) == ("origin", 403, {})
            assert "pages from https://evil.example are not let in" in str(error)


def test_without_tokens_a_name_that_points_here_is_not_enough() -> None:
    visitor = Visitor("127.0.0.1", (), ("https://evil.example",), ("evil.example",))
    assert refused(Door(), visitor).reason == "origin"
    assert Door(DoorOptions(named=True)).admit(visitor, "transcribe") == Pass()


@pytest.mark.parametrize(
    ("origins", "shown"),
    [
        (("null",), "null"), (("https://a\nb",), "that origin"), (("<script>",), "that origin"),
        (("https://a", "https://b"), "that origin"),
    ],
)  # fmt: skip
def test_an_origin_is_shown_only_if_it_looks_like_one(origins: tuple[str, ...], shown: str) -> None:
    error = refused(Door(), Visitor("127.0.0.1", (), origins, ("127.0.0.1",)))
    assert str(error).startswith(f"pages from {shown} are not let in")


def test_too_many_requests_of_one_address_are_refused_first_of_all() -> None:
    clock = Clock()
    door = Door(DoorOptions(tokens=TOKENS, per_minute=2), clock=clock)
    for _ in range(2):
        assert refused(door, VISITOR).reason == "no_token"
    error = refused(door, bearing(LONG))
    assert (error.reason, error.status, error.headers) == ("rate", 429, {"Retry-After": "30"})
    assert door.admit(bearing(LONG, "192.0.2.2"), "transcribe")
    clock.now_s += 30
    assert door.admit(bearing(LONG), "transcribe")


def test_behind_a_proxy_its_word_counts_and_otherwise_nobodys() -> None:
    for proxies, last in ((0, False), (1, True)):
        door = Door(DoorOptions(per_minute=1, proxies=proxies), clock=Clock())
        door.knock(Visitor("127.0.0.1", forwarded=("192.0.2.1",)))
        visitor = Visitor("127.0.0.1", forwarded=("192.0.2.2",))
        if last:
            door.knock(visitor)
        else:
            assert refused(door, visitor).reason == "rate"


def test_a_token_has_so_many_sessions_and_no_more() -> None:
    door = Door(OPTIONS)
    two, everybody = door.admit(bearing(TWO), "transcribe"), door.admit(bearing(LONG), "transcribe")
    with door.take_place(two), door.take_place(everybody):
        place = door.take_place(two)
        for _ in range(2):
            with pytest.raises(AdmissionError, match="this token has 2 sessions already") as error:
                door.take_place(two)
            assert (error.value.status, error.value.headers) == (429, {"Retry-After": "5"})
        place.release()
        place.release()  # only the first counts
        with door.take_place(two), pytest.raises(AdmissionError):
            door.take_place(two)
    assert not door._taken


def test_session_tokens() -> None:
    clock, wall = Clock(), Clock()
    door = Door(OPTIONS, clock=clock, wall_clock=wall)
    minted = mint(door, bearing(TWO), Wish(ttl_s=60))
    assert door.admit(Visitor(query=f"token={minted.value}"), "transcribe") == Pass("two", {"transcribe"}, 2)
    assert refused(door, bearing(minted.value), right="view").reason == "right"
    with pytest.raises(AdmissionError, match="cannot make another one"):
        mint(door, bearing(minted.value), Wish())
    wall.now_s += 60
    error = refused(door, bearing(minted.value))
    assert (error.reason, error.status) == ("expired_token", 401)
    with pytest.raises(AdmissionError, match="expired"):
        mint(door, bearing(minted.value), Wish())


def test_a_session_token_may_be_good_for_one_session() -> None:
    door = Door(OPTIONS)
    both = frozenset[Right]({"view", "transcribe"})
    minted = mint(door, bearing(LONG), Wish(both, session="abc"))
    for right in both:
        assert door.admit(bearing(minted.value), right, "abc").session == "abc"
        for session in ("abd", None):
            with pytest.raises(AdmissionError, match="good for another session"):
                door.admit(bearing(minted.value), right, session)


@pytest.mark.parametrize(
    ("visitor", "reason"),
    [
        (Visitor(query=f"token={LONG}"), "no_token"),  # addresses are written down in many places
        (bearing("wrong"), "bad_token"),
        (bearing(VIEWER), "right"),
        (Visitor("", (f"Bearer {LONG}",), ("https://evil.example",), ("talk.example",)), "origin"),
    ],
)
def test_who_cannot_make_session_tokens(visitor: Visitor, reason: str) -> None:
    with pytest.raises(AdmissionError) as error:
        mint(Door(OPTIONS), visitor, Wish())
    assert error.value.reason == reason


def test_where_no_tokens_are_needed_none_are_made() -> None:
    with pytest.raises(FieldError, match="everybody may come in"):
        mint(Door(), bearing(LONG), Wish())


def test_servers_with_one_key_accept_each_others_session_tokens() -> None:
    shared = DoorOptions(tokens=TOKENS, key=b"0" * 32)
    minted = mint(Door(shared), bearing(LONG), Wish())
    assert Door(shared).admit(bearing(minted.value), "transcribe").name == "all"
    assert refused(Door(OPTIONS), bearing(minted.value)).reason == "bad_token"


def test_tokens_may_be_replaced() -> None:
    door = Door(OPTIONS)
    minted = mint(door, bearing(LONG), Wish())
    door.replace_tokens([Token.of("all", "another-long-token")])
    for token in (LONG, VIEWER, minted.value):
        assert refused(door, bearing(token)).reason == "bad_token"
    assert door.admit(bearing("another-long-token"), "transcribe").name == "all"
    with pytest.raises(ConfigurationError, match="decided at the start"):
        door.replace_tokens([])
    assert door.token_needed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": b"0" * 31}, "at least 32 characters"),
        ({"per_minute": -1}, "negative"),
        ({"proxies": -1}, "negative"),
        ({"origins": ("talk",)}, "no origin"),
        ({"tokens": (TOKENS[0], TOKENS[0])}, "two tokens"),
    ],
)
def test_options_that_cannot_be(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        DoorOptions(**options)  # type: ignore[arg-type]


def test_a_refusal_is_logged_once_and_without_the_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    door = Door(OPTIONS)
    for n in range(10):
        visitor = Visitor("192.0.2.1", query=f"token=wrong-token-{n}")
        door.tell_refused(visitor, refused(door, visitor))
    assert [record.getMessage() for record in caplog.records] == [
        "refused 192.0.2.1: this token is not valid here"
    ]


def test_the_operator_is_told_whose_token_it_was(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    door = Door(OPTIONS)
    error = refused(door, bearing(VIEWER))
    door.tell_refused(VISITOR, error)
    assert "viewer" not in str(error)
    assert caplog.messages == [
        "refused 192.0.2.1: this token is not good for this: it lacks the right 'transcribe' (token 'viewer')"
    ]


def test_a_flood_of_addresses_costs_bounded_memory() -> None:
    door = Door(DoorOptions(tokens=TOKENS), clock=Clock())
    for n in range(30_000):
        visitor = Visitor(f"2001:db8:{n >> 8:x}:{n & 255:x}::1")
        door.tell_refused(visitor, refused(door, visitor))
    assert len(door._rates) == 10_000
    assert len(door._refusals) <= 60
