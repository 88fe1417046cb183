"""Processes that find each other, or say who is late and who disagrees."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from scaling.errors import UserError
from scaling.places import Place
from scaling.rendezvous import meet

HOST = socket.gethostname()


@pytest.fixture
def place():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return Place(f"127.0.0.1:{port}", 3, 0)


def gather(calls, timeout=1.5):
    """What `meet` gives each of the calls (place, facts) made at once: hosts or a sentence."""

    def call(arguments):
        place, facts = arguments
        try:
            return meet(place, timeout, facts)
        except UserError as error:
            return str(error)

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(call, calls))


def test_all_learn_the_hosts_and_the_port_is_free_again(place):
    everyone = [(replace(place, process=i), {"jax": "1"}) for i in (2, 1, 0)]
    for _ in range(2):
        assert gather(everyone) == [[HOST] * 3] * 3


def test_who_is_late_is_named_to_all(place):
    answers = gather([(place, {}), (replace(place, process=2), {})])
    sentence = "process 1 of 3 did not start within 1.5 s; run the same command on every host."
    assert answers == [sentence] * 2
    assert gather([(place, {})]) == [sentence.replace("process 1", "processes 1, 2")]


def test_nobody_at_the_coordinator(place):
    [answer] = gather([(replace(place, process=1), {})], timeout=0.5)
    assert answer == (
        f"process 1 of 3 could not reach process 0 at {place.coordinator} within 0.5 s (Connection "
        "refused); start the same command there as process 0, and check the address and the "
        "firewall."
    )


def test_another_count_is_refused_everywhere(place):
    first, second = gather([(place, {}), (replace(place, process=1, processes=4), {})])
    assert (
        first
        == second
        == (
            f"process 1 ({HOST}) was started as one of 4, but process 0 ({HOST}) as one of 3; give "
            "every process the same --processes."
        )
    )


def test_two_of_the_same_number_are_refused(place):
    one = replace(place, process=1)
    first, second, third = gather([(place, {}), (one, {}), (one, {})])
    assert first == second == third == (
        f"there are two processes 1, on {HOST} and {HOST}; give every process a --process-id of "
        "its own."
    )  # fmt: skip


def test_what_must_be_the_same_is_compared(place):
    two = replace(place, processes=2)
    first, second = gather([(two, {"jax": "1"}), (replace(two, process=1), {"jax": "2"})])
    assert (
        first
        == second
        == (
            f"process 1 of 2 ({HOST}) has jax 2, but process 0 has 1; give every host the same "
            "packages, study and flags."
        )
    )


def test_a_port_that_is_taken(place):
    with socket.create_server(("", int(place.coordinator.split(":")[1]))):
        [answer] = gather([(place, {})])
    assert answer.startswith("process 0 cannot listen on port") and "another port" in answer


def test_strangers_are_ignored(place):
    two = replace(place, processes=2)
    with ThreadPoolExecutor(1) as pool:
        lead = pool.submit(meet, two, 10, {})
        for words in (b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b""):
            for _ in range(1000):
                try:
                    address = ("127.0.0.1", int(place.coordinator.split(":")[1]))
                    with socket.create_connection(address, timeout=1) as stranger:
                        stranger.sendall(words)
                    break
                except ConnectionRefusedError:
                    time.sleep(0.01)
        assert meet(replace(two, process=1), 10, {}) == lead.result() == [HOST] * 2
