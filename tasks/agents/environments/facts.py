"""Questions about people whom nobody knows, with a search tool: `search Ada` is answered with what is known of her,
`answer baker` ends it.

People, jobs and relations are drawn anew for each game, so that nothing can be known by heart. With several hops the
answer is that of someone's friend's boss, and each search shows the next name to look for.
"""

import random
import re
from collections.abc import Mapping, Sequence

from tasks.agents.environments.protocol import Message, Setting, Turn, check_and_fill_settings, get_number_setting

DEFAULTS: Mapping[str, Setting] = {
    "people": 6,  # 4 to 16
    "hops": 1,  # searches that the answer needs: 1 to 3
    "search_cost": 0.0,  # of each search
    "turns": 6,  # after which the episode ends without an answer
}
NAMES = ("Ada", "Bob", "Cid", "Dan", "Eve", "Fay", "Gil", "Hal", "Ida", "Jim", "Kay", "Leo", "Mia", "Ned", "Ola", "Pam")
RELATIONS = ("friend", "boss", "sister")
KNOWN = {
    "job": ("baker", "judge", "miner", "nurse", "pilot", "tailor"),
    "town": ("Bonn", "Cork", "Lyon", "Oslo", "Pisa", "Turku"),
    "pet": ("cat", "crow", "dog", "goat", "hen", "mule"),
}
SEARCH = re.compile(r"search (\w+)")
ANSWER = re.compile(r"answer (\w+)")


class Facts:
    """The environment; see DEFAULTS for its settings."""

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        validated = check_and_fill_settings(settings, DEFAULTS)
        self.people = int(get_number_setting(validated, "people", 4, len(NAMES)))
        self.hops = int(get_number_setting(validated, "hops", 1, 3))
        self.turns = int(get_number_setting(validated, "turns", 1, 1000))
        self.search_cost = get_number_setting(validated, "search_cost", 0, 1000)

    def reset(self, seed: int) -> Sequence[Message]:
        """Draw people and a question."""
        generator = random.Random(seed)
        names = generator.sample(NAMES, self.people)
        self.facts = {
            name: {relation: generator.choice([other for other in names if other != name]) for relation in RELATIONS}
            | {what: generator.choice(values) for what, values in KNOWN.items()}
            for name in names
        }
        self.chain = [names[0]]
        relations = list[str]()
        for _ in range(self.hops - 1):
            relations.append(generator.choice(RELATIONS))
            self.chain.append(self.facts[self.chain[-1]][relations[-1]])
        what = generator.choice(sorted(KNOWN))
        self.result = self.facts[self.chain[-1]][what]
        self.turns_played = 0
        self.found_links = 0
        relation_phrase = "".join(f"the {relation} of " for relation in reversed(relations))
        return [{"role": "user", "content": f"What is the {what} of {relation_phrase}{self.chain[0]}?"}]

    def step(self, action: str) -> Turn:
        """Search or answer."""
        self.turns_played += 1
        last = self.turns_played >= self.turns
        command = action.strip()
        if answer := ANSWER.fullmatch(command):
            right = float(answer[1] == self.result)
            return Turn("", right, True, {"right": right})
        if search := SEARCH.fullmatch(command):
            name = search[1]
            if self.found_links < len(self.chain) and name == self.chain[self.found_links]:
                self.found_links += 1
            facts = self.facts.get(name)
            observation = (
                "Nobody of this name." if facts is None else ", ".join(f"{key} {value}" for key, value in facts.items())
            )
            return Turn(observation, -self.search_cost, last, {"searches": 1.0})
        return Turn("I do not understand that.", 0.0, last)

    def best_action(self) -> str:
        """Search along the chain, then answer."""
        return (
            f"search {self.chain[self.found_links]}" if self.found_links < len(self.chain) else f"answer {self.result}"
        )

    def optimum(self) -> float:
        """1, less the searches that are still needed: nothing of it can be known without them."""
        return 1.0 - self.search_cost * (len(self.chain) - self.found_links)
