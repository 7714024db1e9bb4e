"""The kinds of constraints that a program can check, under IFEval's names and with its arguments (arXiv:2311.07911,
table 1).

Each function holds a response that is not blank against one kind's arguments. They judge as the paper's published code
does, which tests/oracles/test_ifeval.py shows, except that

- keywords are texts, not regular expressions, and a paragraph's first word, a letter or a sign is compared as given;
- sentences and words in capitals are found by the rules in `sentences` and `capitals` instead of trained tokenizers;
- "english_capital" and "english_lowercase" look at the letters alone;
- the language is told by the code's own detector (langdetect), but from a fixed seed and a response's first 20,000
  signs, and a response without a language, such as `42!`, is in none, where the code lets it pass for any.

Responses may be hostile: every function takes time linear in the response. For that none searches by an expression that
could read a stretch of the response again from each of its places.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tasks.language.rewards.sentences import count_sentences

RELATIONS = {"less than": int.__lt__, "at least": int.__ge__}
OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
POSTSCRIPTS = {"P.S.": re.compile(r"p\.\s?s\."), "P.P.S": re.compile(r"p\.\s?p\.\s?s")}
FENCES = ("```json", "```Json", "```JSON", "```")
MOST_TO_DETECT = 20_000  # signs of a response; the detector itself looks at half of them
BETWEEN_WORDS = re.compile(r"[\s,;:?!()\[\]{}<>\"\u201c\u201d@#$%&*]+|(?=['\u2019])")


@dataclass(frozen=True)
class Field:
    """What an argument has to be, in words and as a test."""

    expected: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class ConstraintKind:
    """How one kind of constraint is checked: `holds(response, **arguments)`, all `arguments` needed."""

    holds: Callable[..., bool]
    arguments: Mapping[str, Field]


def _is_whole_number(value: object, least: int) -> bool:
    """Whole numbers may be floats: a table's column of numbers that has gaps is read as floats."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and value >= least and value % 1 == 0  # type: ignore[operator]  # it is a number


def _is_nonblank_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


COUNT = Field("a whole number from 0 on", lambda value: _is_whole_number(value, 0))
PLACE = Field("a whole number from 1 on", lambda value: _is_whole_number(value, 1))
TEXT = Field("a text that is not blank", _is_nonblank_text)
TEXTS = Field(
    "a list of texts that are not blank",
    lambda value: isinstance(value, list) and value != [] and all(map(_is_nonblank_text, value)),
)
SIGN = Field("a single letter or sign", lambda value: _is_nonblank_text(value) and len(value) == 1)
LANGUAGES = (
    "ar, bg, bn, de, en, es, fa, fi, fr, gu, he, hi, it, ja, kn, ko, ml, mr, ne, pa, pl, pt, ru, sw, ta, "
    "te, th, uk, ur, vi"
)
LANGUAGE = Field(f"one of {LANGUAGES}", lambda value: value in LANGUAGES.split(", "))
RELATION = Field("'less than' or 'at least'", lambda value: isinstance(value, str) and value in RELATIONS)
KINDS: dict[str, ConstraintKind] = {}  # by name


def register_kind(name: str, **arguments: Field) -> Callable[[Callable[..., bool]], Callable[..., bool]]:
    """Enter the function below into KINDS."""

    def enter(holds: Callable[..., bool]) -> Callable[..., bool]:
        KINDS[name] = ConstraintKind(holds, arguments)
        return holds

    return enter


def is_count_in_relation(count: int, relation: str, wanted: float) -> bool:
    """Whether `count` is less than or at least `wanted`."""
    return RELATIONS[relation](count, int(wanted))


def count_capital_words(response: str) -> int:
    """How many words are in capitals: texts between spaces, punctuation and apostrophes whose letters are all capital,
    "I" too.
    """
    return sum(word.isupper() for word in BETWEEN_WORDS.split(response))


@cache
def load_detector_factory() -> Any:
    """What makes detectors of languages; it reads 2 MB of profiles, in a fourth of a second."""
    from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory

    factory = DetectorFactory()
    factory.load_profile(PROFILES_DIRECTORY)
    factory.set_seed(0)
    return factory


def detect_language(response: str) -> str | None:
    """The code of the language that a response is in; None where it has no letters that tell one."""
    from langdetect import LangDetectException

    detector = load_detector_factory().create()
    detector.append(response[:MOST_TO_DETECT])
    try:
        language: str = detector.detect()
    except LangDetectException:
        return None
    return language


def split_at_divider(response: str, divider: re.Pattern[str] | str) -> list[str] | None:
    """The texts between dividers, where only the first and last may be blank and are then left out; else None."""
    pieces = divider.split(response) if isinstance(divider, re.Pattern) else response.split(divider)
    if not all(map(str.strip, pieces[1:-1])):
        return None
    return [part for part in pieces if part.strip()]


@register_kind("keywords:existence", keywords=TEXTS)
def has_all_keywords(response: str, keywords: Sequence[str]) -> bool:
    """Each of the keywords occurs, in whatever case, be it within a word."""
    return all(keyword.lower() in response.lower() for keyword in keywords)


@register_kind("keywords:frequency", keyword=TEXT, frequency=COUNT, relation=RELATION)
def has_keyword_frequency(response: str, keyword: str, frequency: int, relation: str) -> bool:
    """The keyword occurs so often, in whatever case, within words too."""
    return is_count_in_relation(response.lower().count(keyword.strip().lower()), relation, frequency)


@register_kind("keywords:forbidden_words", forbidden_words=TEXTS)
def has_no_forbidden_words(response: str, forbidden_words: Sequence[str]) -> bool:
    """None of the words occurs as a whole word, in whatever case."""
    words = (re.escape(word) for word in forbidden_words)
    return not any(re.search(rf"(?<!\w){word}(?!\w)", response, re.IGNORECASE) for word in words)


@register_kind("keywords:letter_frequency", letter=SIGN, let_frequency=COUNT, let_relation=RELATION)
def has_letter_frequency(response: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    """The letter or sign occurs so often, in whatever case."""
    return is_count_in_relation(response.lower().count(letter.lower()), let_relation, let_frequency)


@register_kind("length_constraints:number_sentences", num_sentences=COUNT, relation=RELATION)
def has_sentence_count(response: str, num_sentences: int, relation: str) -> bool:
    """So many sentences."""
    return is_count_in_relation(count_sentences(response), relation, num_sentences)


@register_kind("length_constraints:number_words", num_words=COUNT, relation=RELATION)
def has_word_count(response: str, num_words: int, relation: str) -> bool:
    """So many words: stretches of letters, digits and underscores, so that "it's" is two."""
    return is_count_in_relation(sum(1 for _ in re.finditer(r"\w+", response)), relation, num_words)


@register_kind("length_constraints:number_paragraphs", num_paragraphs=COUNT)
def has_paragraph_count(response: str, num_paragraphs: int) -> bool:
    """Exactly so many paragraphs, divided by `***`, none of them blank."""
    paragraphs = split_at_divider(response, "***")
    return paragraphs is not None and len(paragraphs) == num_paragraphs


@register_kind(
    "length_constraints:nth_paragraph_first_word", num_paragraphs=PLACE, nth_paragraph=PLACE, first_word=TEXT
)
def has_nth_paragraph_first_word(response: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Exactly so many paragraphs, divided by empty lines, and the n-th begins with the word, in whatever case.

    Blank paragraphs count when the n-th is looked up, but not among the number of paragraphs.
    """
    paragraphs = response.split("\n\n")
    if nth_paragraph > num_paragraphs or sum(bool(part.strip()) for part in paragraphs) != num_paragraphs:
        return False
    words = paragraphs[int(nth_paragraph) - 1].split(maxsplit=1)
    begins = re.match(r"'*\"*([^.,?!'\"]*)", words[0]) if words else None
    return begins is not None and begins[1].lower() == first_word.lower()


@register_kind("detectable_content:number_placeholders", num_placeholders=COUNT)
def has_placeholders(response: str, num_placeholders: int) -> bool:
    """At least so many placeholders, as in `[address]`, each on one line."""
    count = 0
    for line in response.split("\n"):
        behind = 0
        while (opened := line.find("[", behind)) >= 0 and (closed := line.find("]", opened)) >= 0:
            count = count + 1
            behind = closed + 1
    return count >= num_placeholders


@register_kind("detectable_content:postscript", postscript_marker=TEXT)
def has_postscript(response: str, postscript_marker: str) -> bool:
    """The marker of a postscript occurs, in whatever case; P.S. and P.P.S may be written with spaces in between."""
    marker = postscript_marker.strip()
    if marker in POSTSCRIPTS:
        return bool(POSTSCRIPTS[marker].search(response.lower()))
    return marker.lower() in response.lower()


@register_kind("detectable_format:number_bullet_lists", num_bullets=COUNT)
def has_bullet_count(response: str, num_bullets: int) -> bool:
    """Exactly so many bullet points: lines that begin with `-`, or with one `*` and have more behind it."""
    lines = [line.strip() for line in response.split("\n")]
    return sum(line[:1] == "-" or (line[:1] == "*" and line[1:2] not in ("", "*")) for line in lines) == num_bullets


@register_kind("detectable_format:constrained_response")
def has_allowed_answer(response: str) -> bool:
    """One of the three answers occurs that IFEval's prompts allow: yes, no or maybe, each as a sentence."""
    return any(option in response for option in OPTIONS)


@register_kind("detectable_format:number_highlighted_sections", num_highlights=COUNT)
def has_highlighted_sections(response: str, num_highlights: int) -> bool:
    """At least so many highlighted texts, as in `*this*` or `**this**`, each on one line."""
    single = (text[0].strip("*") for text in re.finditer(r"\*[^\n*]*\*", response))
    double = (text[0][2:-2] for text in re.finditer(r"\*\*[^\n*]*\*\*", response))
    return sum(bool(text.strip()) for highlights in (single, double) for text in highlights) >= num_highlights


@register_kind("detectable_format:multiple_sections", section_spliter=TEXT, num_sections=COUNT)
def has_numbered_sections(response: str, section_spliter: str, num_sections: int) -> bool:
    """At least so many sections, each of them headed as in `Section 1`."""
    heads = re.finditer(rf"{re.escape(section_spliter.strip())}\s?\d+", response)
    return sum(1 for _ in heads) >= num_sections


@register_kind("detectable_format:json_format")
def is_json_text(response: str) -> bool:
    """The whole response is JSON, within a fence of three backticks or without."""
    text = response.strip()
    for fence in FENCES:
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```"))
    except (ValueError, RecursionError):
        return False
    return True


@register_kind("detectable_format:title")
def has_title(response: str) -> bool:
    """A title stands on a line, as in `<<Title>>`."""
    for line in response.split("\n"):
        opened = line.find("<<")
        closed = line.rfind(">>")
        if 0 <= opened < closed and line[opened:closed].strip("<> \t\r"):
            return True
    return False


@register_kind("combination:two_responses")
def has_two_responses(response: str) -> bool:
    """Two different texts, divided by six asterisks."""
    responses = split_at_divider(response, "******")
    return responses is not None and len(responses) == 2 and responses[0].strip() != responses[1].strip()


@register_kind("combination:repeat_prompt", prompt_to_repeat=TEXT)
def has_repeated_prompt(response: str, prompt_to_repeat: str) -> bool:
    """The response begins with the prompt, in whatever case."""
    return response.strip().lower().startswith(prompt_to_repeat.strip().lower())


@register_kind("startend:end_checker", end_phrase=TEXT)
def has_end_phrase(response: str, end_phrase: str) -> bool:
    """The response ends with the phrase, in whatever case, quotation marks behind it aside."""
    return response.strip().strip('"').lower().endswith(end_phrase.strip().lower())


@register_kind("startend:quotation")
def is_quoted(response: str) -> bool:
    """The whole response stands within double quotation marks."""
    text = response.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


@register_kind("change_case:capital_word_frequency", capital_frequency=COUNT, capital_relation=RELATION)
def has_capital_word_frequency(response: str, capital_frequency: int, capital_relation: str) -> bool:
    """So many words in capitals."""
    return is_count_in_relation(count_capital_words(response), capital_relation, capital_frequency)


@register_kind("change_case:english_capital")
def is_all_capital(response: str) -> bool:
    """There are letters, and all are capital."""
    return response.isupper()


@register_kind("change_case:english_lowercase")
def is_all_lowercase(response: str) -> bool:
    """There are letters, and none is capital."""
    return response.islower()


@register_kind("punctuation:no_comma")
def has_no_comma(response: str) -> bool:
    """No comma."""
    return "," not in response


@register_kind("language:response_language", language=LANGUAGE)
def is_in_language(response: str, language: str) -> bool:
    """The response is in the language, by its code."""
    return detect_language(response) == language
