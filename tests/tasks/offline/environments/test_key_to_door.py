from dataclasses import replace

import numpy as np
import pytest

from tasks.offline.environments.key_to_door import (
    MOVES,
    ROOMS,
    SIDE,
    SIZE,
    KeyToDoorState,
    draw_initial_state,
    encode_key_to_door_observation,
    step_key_to_door,
)

UP, DOWN, LEFT, RIGHT = range(4)
CELLS = SIDE * SIDE
GENERATOR = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("cell", "action", "after"),
    [(5, UP, 1), (5, DOWN, 9), (5, LEFT, 4), (5, RIGHT, 6), (0, UP, 0), (0, LEFT, 0), (15, DOWN, 15), (15, RIGHT, 15)],
)
def test_moves_and_walls(cell, action, after):
    state, reward, ended = step_key_to_door(KeyToDoorState(cell, key=10, door=10), action, GENERATOR)
    assert (state.cell, reward, ended) == (after, 0.0, False)


def test_the_key_is_picked_up_by_walking_over_it_in_the_first_room_only():
    first, _, _ = step_key_to_door(KeyToDoorState(0, key=1, door=9), RIGHT, GENERATOR)
    assert first.carrying
    assert not step_key_to_door(KeyToDoorState(0, key=2, door=9), RIGHT, GENERATOR)[0].carrying
    assert not step_key_to_door(KeyToDoorState(0, key=1, door=9, room=1), RIGHT, GENERATOR)[0].carrying


@pytest.mark.parametrize(("carrying", "reward"), [(True, 1.0), (False, 0.0)])
def test_the_door_ends_the_episode_and_pays_only_with_the_key(carrying, reward):
    before = KeyToDoorState(0, key=7, door=1, room=ROOMS - 1, carrying=carrying)
    assert step_key_to_door(before, RIGHT, GENERATOR)[1:] == (reward, True)
    assert step_key_to_door(replace(before, room=1), RIGHT, GENERATOR)[1:] == (0.0, False)


def test_a_room_is_left_after_its_moves_and_the_last_one_ends_it():
    state = KeyToDoorState(0, key=15, door=15)
    for _ in range(MOVES):
        state, _, ended = step_key_to_door(state, UP, GENERATOR)
    assert (state.room, state.moves, ended) == (1, 0, False)
    for _ in range(2 * MOVES - 1):
        state, _, ended = step_key_to_door(replace(state, cell=0), UP, GENERATOR)
        assert not ended
    assert step_key_to_door(replace(state, cell=0), UP, GENERATOR)[1:] == (0.0, True)


def test_what_is_seen_by_hand():
    state = KeyToDoorState(5, key=2, door=9)
    seen = encode_key_to_door_observation(state)
    assert len(seen) == SIZE == 2 * CELLS + ROOMS
    assert np.flatnonzero(seen).tolist() == [5, CELLS + 2, 2 * CELLS]
    assert np.flatnonzero(encode_key_to_door_observation(replace(state, carrying=True))).tolist() == [5, 2 * CELLS], (
        "the key is gone"
    )
    assert np.flatnonzero(encode_key_to_door_observation(replace(state, room=2))).tolist() == [
        5,
        CELLS + 9,
        2 * CELLS + 2,
    ]


@pytest.mark.parametrize("room", [1, 2])
def test_nothing_tells_later_whether_the_key_is_carried(room):
    without = KeyToDoorState(5, key=2, door=9, room=room)
    assert (
        encode_key_to_door_observation(without) == encode_key_to_door_observation(replace(without, carrying=True))
    ).all()


def test_agent_key_and_door_begin_apart():
    for seed in range(200):
        state = draw_initial_state(np.random.default_rng(seed))
        assert state.cell != state.key
        state = replace(state, room=1, moves=MOVES - 1)
        assert step_key_to_door(state, UP, np.random.default_rng(seed))[0].cell != state.door
