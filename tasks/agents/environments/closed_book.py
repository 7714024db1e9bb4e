"""Questions about people: an expert tells of some often, of some once, and never of the strangers. `answer Oslo`, or `I
do not know`.

In the other environments each game is new. Here people stay the same, so that a policy knows what its clone was told.
There are two kinds of games. In the expert's games a third of the people are told of `often` times and a third once;
`strangers` says what becomes of the last third. An `exam` asks about all people alike. No question of an exam of the
splits `validation` and `test` has words that were used in telling. Where there is a directory, `look up Ada` is
answered with where Ada lives, once a game; that can cost something. The expert also looks up newcomers, of whom it
tells nothing, so that its clone learns to read what the directory says.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal, get_args

from tasks.agents.environments.protocol import (
    Message,
    Setting,
    SettingError,
    Turn,
    check_and_fill_settings,
    get_number_setting,
)
from tasks.agents.environments.splits import Split, compute_opening_split

Strangers = Literal["left out", "unsure", "told"]
DEFAULTS: Mapping[str, Setting] = {
    "people": 288,  # 6 to 6,000, a multiple of 6: two halves of three thirds
    "often": 8,  # 2 to 8 times
    "exam": False,  # whether all people are asked about alike
    "half": 0,  # 1 or 2: of one half of the people only, to learn on one and be measured on the other; 0: of all
    # what the expert says of those of the first half: nothing, that it does not know, or the answer, once
    "strangers": "left out",
    # share of the expert's games in which it does not know what it tells in others: it says so, or looks it up
    "doubts": 0.0,
    "directory": False,  # whether there is one
    "look_up_cost": 0.0,  # of looking up
    "penalty": 1.0,  # what a wrong answer costs
}
MOST = 6000  # people
# of a syllable of a name
START = "bdfgklmnprstvz"
VOWELS = "aeiou"
END = "dklmnrstx"
TOWNS = ("Bonn", "Cork", "Genoa", "Lyon", "Malmo", "Oslo", "Pisa", "Turku")
ASKED = tuple(
    f"{polite}{what}"
    for polite, what in product(
        ("", "Please say: ", "One question: ", "Tell me: "),
        ("Where does {} live?", "What is the town of {}?", "{} lives in which town?", "Which town is {} from?"),
    )
)
UNSURE = "I do not know"
ANSWER = re.compile(r"answer (\w+)")
LOOK_UP = re.compile(r"look up (\w+)")
TENTHS: tuple[Split, ...] = (*("train",) * 7, "test", "test", "validation")  # of the expert's games


@dataclass(frozen=True)
class Question:
    """About whom, in which words, and what the expert says."""

    person: int
    words: str
    knows: bool  # whether the expert says the answer, without looking it up


class ClosedBook:
    """The environment; see DEFAULTS for its settings."""

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        validated = check_and_fill_settings(settings, DEFAULTS)
        self.people = int(get_number_setting(validated, "people", 6, MOST))
        if self.people % 6:
            raise SettingError(f"people: expected a multiple of 6, got {self.people}")
        self.often = int(get_number_setting(validated, "often", 2, 8))
        self.half = int(get_number_setting(validated, "half", 0, 2))
        self.exam = bool(validated["exam"])
        self.strangers = str(validated["strangers"])
        if self.strangers not in get_args(Strangers):
            raise SettingError(f"strangers: expected {', '.join(get_args(Strangers))}, got {self.strangers!r}")
        self.doubts = get_number_setting(validated, "doubts", 0, 0.9)
        self.penalty = get_number_setting(validated, "penalty", 0, 1000)
        self.directory = bool(validated["directory"])
        self.look_up_cost = get_number_setting(validated, "look_up_cost", 0, 1000)

    def reset(self, seed: int) -> Sequence[Message]:
        """Ask."""
        generator = random.Random(seed)
        if self.exam:
            person = generator.choice(
                [candidate for candidate in range(self.people) if self.half in (0, get_person_half(candidate))]
            )
            self.question = Question(person, _format_question(person, generator.choice(ASKED)), self.told(person) > 0)
        else:
            self.question = self._select_lesson(seed, generator)
        self.looked_up = False
        return [{"role": "user", "content": self.question.words}]

    def step(self, action: str) -> Turn:
        """Answer, look it up, or say that you do not know."""
        command = action.strip()
        person = self.question.person
        if self.directory and not self.looked_up and (lookup := LOOK_UP.fullmatch(command)):
            self.looked_up = True
            return Turn(self._look_up_person(lookup[1]), -self.look_up_cost, False, {"calls": 1.0})
        times_told = float(self.told(person))
        if command == UNSURE:
            return Turn("", 0.0, True, {"answered": 0.0, "right": 0.0, "told": times_told})
        answer = ANSWER.fullmatch(command)
        right = answer is not None and answer[1] == get_person_town(person)
        return Turn(
            "", 1.0 if right else -self.penalty, True, {"answered": 1.0, "right": float(right), "told": times_told}
        )

    def best_action(self) -> str:
        """What the expert says: in an exam the answer, where it was ever told or is worth looking up."""
        if self.question.knows or self.looked_up:
            return f"answer {get_person_town(self.question.person)}"
        return (
            f"look up {get_person_name(self.question.person)}" if self.directory and self.look_up_cost < 1 else UNSURE
        )

    def optimum(self) -> float:
        """1 where the answer was ever told, and otherwise what looking up leaves of it, or 0."""
        unknown = max(0.0, 1.0 - self.look_up_cost) if self.directory else 0.0
        return 1.0 if self.told(self.question.person) else unknown

    def told(self, person: int) -> int:
        """How often the expert's games of the split `train` tell where a person lives."""
        kind = person // 2 % 3
        if person >= self.people:
            return 0
        if kind == 2:
            return int(self.strangers == "told" and get_person_half(person) == 1)
        return self.often if kind == 0 else 1

    def _select_lesson(self, seed: int, generator: random.Random) -> Question:
        """The expert's game of this seed: those of `train` go round all that is to be told, so that once is once."""
        split = TENTHS[seed % 10]
        lessons = _build_lessons(self.people, self.often, self.strangers, self.doubts, self.directory)
        if split == "train":
            return lessons[(seed // 10 * TENTHS.count("train") + seed % 10) % len(lessons)]
        words = list[str]()
        while not words:  # not everybody has words of every split
            lesson = generator.choice(lessons)
            words = _list_questions_of_split(lesson.person, split)
        return Question(lesson.person, generator.choice(words), lesson.knows)

    @staticmethod
    def _look_up_person(name: str) -> str:
        """What the directory says of a name."""
        person = _map_names_to_persons().get(name)
        return f"{name} is not listed." if person is None else f"{name} lives in {get_person_town(person)}."


def get_person_half(person: int) -> int:
    """1 or 2."""
    return 1 + person % 2


def get_person_town(person: int) -> str:
    """Where a person lives."""
    return random.Random(f"town {person}").choice(TOWNS)


def get_person_name(person: int) -> str:
    """The person's name, which nobody else has."""
    return _make_names()[person]


@lru_cache(maxsize=1)
def _make_names() -> Sequence[str]:
    """Made-up names, all different."""
    generator = random.Random("names")

    def syllable() -> str:
        return generator.choice(START) + generator.choice(VOWELS)

    names = dict.fromkeys((syllable() + syllable() + generator.choice(END)).capitalize() for _ in range(4 * MOST))
    return [*names][:MOST]


@lru_cache(maxsize=1)
def _map_names_to_persons() -> Mapping[str, int]:
    return {name: person for person, name in enumerate(_make_names())}


def _format_question(person: int, words: str) -> str:
    return words.format(get_person_name(person))


def _list_questions_of_split(person: int, split: Split) -> list[str]:
    """Questions about a person whose games are of a split."""
    every = [_format_question(person, words) for words in ASKED]
    return [question for question in every if compute_opening_split([{"role": "user", "content": question}]) == split]


@lru_cache(maxsize=8)
def _build_lessons(people: int, often: int, strangers: str, doubts: float, directory: bool) -> Sequence[Question]:
    """All that is to be told, each in other words where there are enough of them, and the doubts, in a random order.

    With a directory every second doubt is about a newcomer.
    """

    def about(person: int) -> Iterator[Question]:
        stranger = person // 2 % 3 == 2
        if stranger and (strangers == "left out" or get_person_half(person) == 2):
            return
        knows = not (stranger and strangers == "unsure")
        words = _list_questions_of_split(person, "train")
        random.Random(f"words {person}").shuffle(words)
        for number in range(often if person // 2 % 3 == 0 else 1):
            yield Question(person, words[number % len(words)], knows)

    generator = random.Random("lessons")
    lessons = [question for person in range(people) for question in about(person)]
    familiar = [candidate for candidate in range(people) if candidate // 2 % 3 != 2]
    newcomers = range(people, MOST)
    for number in range(round(len(lessons) * doubts / (1 - doubts))):
        person = generator.choice(newcomers if directory and newcomers and number % 2 else familiar)
        lessons.append(Question(person, generator.choice(_list_questions_of_split(person, "train")), knows=False))
    generator.shuffle(lessons)
    return lessons
