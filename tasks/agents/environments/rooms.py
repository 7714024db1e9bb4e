"""A text game: rooms, locked doors and their keys, a treasure to take, things that had better be left alone.

It is drawn from a seed. Commands are parsed as in Zork: `go north` (or `n`), `take red key`, `open red door`. The whole
game is a graph of states, over which a breadth-first search knows the distance to the treasure, and so the largest
return and how to reach it.
"""

import random
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tasks.agents.environments.protocol import (
    GameFault,
    Message,
    Setting,
    SettingError,
    Turn,
    check_and_fill_settings,
    get_number_setting,
)

DRAWS = 100
DEFAULTS: Mapping[str, Setting] = {
    "rooms": 5,  # 2 to 12
    "doors": 1,  # locked ones, each with its key; fewer than rooms, at most 4
    "traps": 0,  # cursed things, at most 4
    "trap_penalty": 1.0,  # what taking one costs
    "turns": 20,  # after which the game is lost
    "turn_cost": 0.02,  # of each action
    "shaping": 0.0,  # paid for each step nearer to the treasure, and taken for each step away
}
NAMES = (
    "kitchen",
    "hall",
    "cellar",
    "attic",
    "study",
    "garden",
    "library",
    "bedroom",
    "stable",
    "tower",
    "chapel",
    "pantry",
)
COLOURS = ("red", "blue", "green", "yellow")
CURSED = ("coin", "mask", "doll", "bone")
TREASURE = "lamp"
MOVES = {"north": (0, 1), "east": (1, 0), "south": (0, -1), "west": (-1, 0)}
BACK = {"north": "south", "south": "north", "east": "west", "west": "east"}
COMMAND = re.compile(r"(?:(go|walk|take|get|pick up|open|unlock) )?(.+)")
RULES = (
    "Find the lamp and take it. You can go north, east, south or west, take a thing, and open a "
    "door whose key you have."
)


class RoomsState(NamedTuple):
    """Where a game stands."""

    room: int
    held: frozenset[str]  # things
    opened: frozenset[str]  # colours of doors


@dataclass(frozen=True)
class Layout:
    """What a game does not change: rooms by number."""

    names: tuple[str, ...]
    exits: tuple[Mapping[str, int], ...]  # direction -> room
    doors: Mapping[frozenset[int], str]  # the two rooms -> colour
    things: Mapping[str, int]  # thing -> the room where it lies at first


class Rooms:
    """The game; see DEFAULTS for its settings."""

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        validated = check_and_fill_settings(settings, DEFAULTS)
        self.rooms = int(get_number_setting(validated, "rooms", 2, len(NAMES)))
        self.doors = int(get_number_setting(validated, "doors", 0, len(COLOURS)))
        self.traps = int(get_number_setting(validated, "traps", 0, len(CURSED)))
        self.turns = int(get_number_setting(validated, "turns", 1, 10_000))
        self.trap_penalty = get_number_setting(validated, "trap_penalty", 0, 1000)
        self.turn_cost = get_number_setting(validated, "turn_cost", 0, 1000)
        self.shaping = get_number_setting(validated, "shaping", 0, 1000)
        if self.doors >= self.rooms:
            raise SettingError(f"doors: expected fewer than rooms = {self.rooms}, got {self.doors}")

    def reset(self, seed: int) -> Sequence[Message]:
        """Draw the game of this seed; one that cannot be won within `turns` is drawn anew, a GameFault after DRAWS of
        them.
        """
        generator = random.Random(seed)
        for _ in range(DRAWS):
            self.layout = _draw_layout(generator, self.rooms, self.doors, self.traps)
            self.state = RoomsState(0, frozenset(), frozenset())
            self.turns_played = 0
            self.distances = _compute_distances(self.layout, self.state)
            if self.distances[self.state] <= self.turns:
                return [{"role": "user", "content": f"{RULES}\n{self._describe_room()}"}]
        raise GameFault(
            f"none of {DRAWS} games can be won within {self.turns} turns; expected more turns, fewer rooms or "
            "fewer doors"
        )

    def step(self, action: str) -> Turn:
        """Obey a command."""
        before = self.distances[self.state]
        self.turns_played += 1
        after, feedback, cursed = _apply_command(self.layout, self.state, action)
        self.state = after
        won = TREASURE in after.held
        reward = float(won) - self.turn_cost - self.trap_penalty * cursed
        reward += self.shaping * (before - self.distances[after])
        if won or self.turns_played >= self.turns:
            return Turn(feedback, reward, True, {"won": float(won), "cursed": float(cursed)})
        return Turn(f"{feedback}\n{self._describe_room()}", reward, False, {"cursed": float(cursed)})

    def best_action(self) -> str:
        """A command on a shortest way to the treasure, the first of equals in a fixed order; cursed things stay where
        they are.
        """
        return min(_iterate_commands(self.layout, self.state), key=lambda pair: self.distances[pair[1]])[0]

    def optimum(self) -> float:
        """1 for the treasure, less the cost of a shortest way to it, more what shaping pays for that way."""
        way = self.distances[self.state]
        return 1.0 + (self.shaping - self.turn_cost) * way

    def _describe_room(self) -> str:
        """The room as it is seen."""
        layout = self.layout
        state = self.state
        ways = [
            f"{way} ({colour} door{'' if colour in state.opened else ', locked'})" if colour else way
            for way, room in layout.exits[state.room].items()
            for colour in [layout.doors.get(frozenset((state.room, room)))]
        ]
        lying = [thing for thing, room in layout.things.items() if room == state.room and thing not in state.held]
        seen = f" You see a {' and a '.join(lying)}." if lying else ""
        return f"You are in the {layout.names[state.room]}. Exits: {', '.join(ways)}.{seen}"


def _draw_layout(generator: random.Random, rooms: int, doors: int, traps: int) -> Layout:
    """Rooms grown on a grid as a tree; doors on the way to the treasure first, each key on the near side of its
    door.
    """
    positions = [(0, 0)]
    exits = [dict[str, int]() for _ in range(rooms)]
    parent = {0: 0}
    while len(positions) < rooms:
        room = generator.randrange(len(positions))
        (way, (x, y)) = generator.choice(list(MOVES.items()))
        position = (positions[room][0] + x, positions[room][1] + y)
        if position not in positions:
            exits[room][way] = len(positions)
            exits[len(positions)][BACK[way]] = room
            parent[len(positions)] = room
            positions.append(position)
    ordered = tuple({way: room_exits[way] for way in MOVES if way in room_exits} for room_exits in exits)
    treasure = generator.randrange(1, rooms)
    passed = [treasure]
    while passed[-1]:
        passed.append(parent[passed[-1]])
    on_way = passed[:-1]  # a room stands for the door to its parent
    others = [room for room in range(1, rooms) if room not in on_way]
    generator.shuffle(on_way)
    generator.shuffle(others)
    locked = (on_way + others)[:doors]
    colours = dict(zip(locked, generator.sample(COLOURS, doors), strict=True))
    things = {TREASURE: treasure}
    for room, colour in sorted(colours.items(), key=lambda pair: _compute_depth(parent, pair[0])):
        things[f"{colour} key"] = generator.choice(_list_rooms_before_door(parent, room, rooms))
    for cursed in generator.sample(CURSED, traps):
        things[f"cursed {cursed}"] = generator.randrange(rooms)
    names = tuple(generator.sample(NAMES, rooms))
    doors_between = {frozenset((room, parent[room])): colour for room, colour in colours.items()}
    return Layout(names, ordered, doors_between, dict(sorted(things.items())))


def _compute_depth(parent: Mapping[int, int], room: int) -> int:
    return 0 if room == 0 else 1 + _compute_depth(parent, parent[room])


def _list_rooms_before_door(parent: Mapping[int, int], door: int, rooms: int) -> list[int]:
    """The rooms that are not behind the door to `door`."""

    def behind(room: int) -> bool:
        return room == door or (room != 0 and behind(parent[room]))

    return [room for room in range(rooms) if not behind(room)]


def _apply_command(layout: Layout, state: RoomsState, action: str) -> tuple[RoomsState, str, bool]:
    """The next state, what is said, and whether a cursed thing was taken."""
    match = COMMAND.fullmatch(" ".join(action.lower().replace(".", " ").split()))
    verb, what = (match[1], match[2].removeprefix("the ")) if match else (None, "")
    way = {letter: name for name in MOVES for letter in (name, name[0])}.get(what)
    if verb in (None, "go", "walk") and way:
        room = layout.exits[state.room].get(way)
        if room is None:
            return state, "There is no way in that direction.", False
        colour = layout.doors.get(frozenset((state.room, room)))
        if colour and colour not in state.opened:
            return state, f"The {colour} door is locked.", False
        return state._replace(room=room), f"You go {way}.", False
    if verb in ("take", "get", "pick up"):
        if what in state.held or layout.things.get(what) != state.room:
            return state, "There is no such thing here.", False
        cursed = what.startswith("cursed")
        return state._replace(held=state.held | {what}), f"You take the {what}.{' It hurts!' if cursed else ''}", cursed
    if verb in ("open", "unlock") and what.endswith(" door"):
        colour = what.removesuffix(" door")
        door_colours = [layout.doors.get(frozenset((state.room, room))) for room in layout.exits[state.room].values()]
        if colour not in door_colours:
            return state, "There is no such door here.", False
        if f"{colour} key" not in state.held:
            return state, f"You have no {colour} key.", False
        return state._replace(opened=state.opened | {colour}), f"You open the {colour} door.", False
    return state, "I do not understand that.", False


def _iterate_commands(layout: Layout, state: RoomsState) -> Iterator[tuple[str, RoomsState]]:
    """Every command that changes something, with the state behind it; nothing cursed is taken."""
    things = [thing for thing, room in layout.things.items() if room == state.room and thing not in state.held]
    colours = {layout.doors.get(frozenset((state.room, room))) for room in layout.exits[state.room].values()}
    commands = [
        *(f"take {thing}" for thing in things if not thing.startswith("cursed")),
        *(f"open {colour} door" for colour in COLOURS if colour in colours),
        *(f"go {way}" for way in layout.exits[state.room]),
    ]
    for command in commands:
        after, _, _ = _apply_command(layout, state, command)
        if after != state:
            yield command, after


def _compute_distances(layout: Layout, start: RoomsState) -> "_Distances":
    """From every state that can be reached without a cursed thing: how many commands bring the treasure."""
    into: dict[RoomsState, list[RoomsState]] = {start: []}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        for _, after in _iterate_commands(layout, state):
            if after not in into:
                into[after] = []
                waiting.append(after)
            into[after].append(state)
    distances = {state: 0 for state in into if TREASURE in state.held}
    waiting = deque(distances)
    while waiting:
        state = waiting.popleft()
        for before in into[state]:
            if before not in distances:
                distances[before] = distances[state] + 1
                waiting.append(before)
    return _Distances(distances)


class _Distances(dict[RoomsState, int]):
    """Cursed things that are held change no distance."""

    def __missing__(self, state: RoomsState) -> int:
        plain = frozenset(thing for thing in state.held if not thing.startswith("cursed"))
        return self[state._replace(held=plain)] if plain != state.held else 10**6
