from __future__ import annotations

from itertools import pairwise

from hypothesis import given

from retention.consumers.fold import fold
from retention.consumers.replies import DELIVERED, PROGRESS
from retention.consumers.state import ConsumerState, contradictions, from_bytes, new_state
from tests.support.consumer_model import LAST_SEQ, Line, World, lines_of, needs, worlds
from tests.support.laws import law


def folded(world: World, log: tuple[Line, ...], cuts: tuple[int, ...]) -> ConsumerState:
    state = new_state(world.consumer.start)
    ends = [0, *cuts, len(log)]
    for begin, end in pairwise(ends):
        said = lines_of(log[begin:end])
        state, _ = fold(world.consumer.policy, state, said, LAST_SEQ)
        assert contradictions(state, LAST_SEQ) == []
        assert from_bytes(state.as_bytes()) == state
    return state


@law
@given(world=worlds(forged=True))
def test_folding_a_whole_log_in_any_pieces_gives_the_servers_state(world: World) -> None:
    assert folded(world, world.log, world.cuts) == world.consumer.state()


@law
@given(world=worlds(forged=False))
def test_from_acks_alone_nothing_is_let_go_that_the_server_still_needs(world: World) -> None:
    acks = tuple(line for line in world.log if line.verb != DELIVERED)
    policy = world.consumer.policy
    state = folded(world, acks, ())
    needed = needs(policy, world.consumer.state(), world.stream)
    assert needed <= needs(policy, state, world.stream)


@law
@given(world=worlds(forged=False))
def test_acks_alone_fold_the_same_in_any_pieces(world: World) -> None:
    acks = tuple(line for line in world.log if line.verb != DELIVERED)
    cuts = sorted(cut % (len(acks) + 1) for cut in world.cuts)
    assert folded(world, acks, tuple(cuts)) == folded(world, acks, ())


@law
@given(world=worlds(forged=False))
def test_acks_for_every_delivery_say_as_much_as_the_server_knows(world: World) -> None:
    acks = tuple(line for line in world.log if line.verb != DELIVERED)
    spoken = {line.consumer_seq for line in acks if line.seq in world.stream}
    mute = tuple(
        Line(PROGRESS, line.deliveries, line.seq, line.consumer_seq)
        for line in world.log
        if line.verb == DELIVERED and line.consumer_seq not in spoken
    )
    policy = world.consumer.policy
    state = folded(world, acks + mute, ())
    assert needs(policy, state, world.stream) == needs(policy, world.consumer.state(), world.stream)
