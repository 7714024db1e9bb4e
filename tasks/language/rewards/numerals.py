"""Written numbers: the one reader of them for rewards, evaluations and people's own test sets. docs/numbers.md has
examples.

    number   = [sign [space]] [currency] ( mantissa [exponent] | power ) [percent]
    mantissa = whole [fraction] | fraction
    whole    = digits, or groups of three behind the first, parted by commas, by spaces, by apostrophes, by underscores
             or by two
               and more full stops; or India's groups of two before a last one of three, parted by commas. No group
               begins with 0
    fraction = "." digits, in groups of three parted by spaces too; or "{,}" digits where that parts no group of three
    exponent = e [sign] digits | times power
    power    = 10 ^ [sign] digits, however the exponent is set: ^8, ^{8}, **8, ^(8), <sup>8</sup>, superscript digits

Digits are those of any script, signs +, - and the dashes and minus signs in use for it, spaces all of one line and
LaTeX's; `e` is E or upright in LaTeX too. At most 300 digits stand before and behind the point, three in an exponent. A
comma alone is never a decimal one: `3,14` is a list of two. Fractions such as 1/2 are algebra. In a text a sign with a
space behind it is a number's where `=`, `is` or the like stands before it: elsewhere it is a difference, or begins a
line of a list. Letters without a width are left out of account. Time is linear in the text.
"""

import re
import unicodedata
from fractions import Fraction
from typing import NamedTuple

LATEX_SPACE = r"(?:\\[,;:! ]|\\thinspace\b|~)"
PLAIN_SPACE = "[ \u00a0\u2000-\u200a\u202f\u205f\u3000]"
SPACE = rf"(?:{PLAIN_SPACE}?{LATEX_SPACE}{{1,3}}{PLAIN_SPACE}?|{PLAIN_SPACE})"
COMMA = r"(?:\{,\}|[,\uff0c\u066c](?:\\! ?)?)"  # also the full-width and the Arabic one
APOSTROPHE = "['\u2019\u02bc]"
BEHIND_SPACE = rf"(?<!\d{PLAIN_SPACE})(?<!\d~)(?<!\d\\[,;:! ])"  # a group that others stand before, which did not fit
LEADING = "(?!0)"
WHOLE = "|".join(
    [
        rf"{LEADING}\d{{1,3}}(?:{COMMA}\d{{3}}){{1,100}}(?!\d)",
        rf"{LEADING}\d{{1,2}}(?:{COMMA}\d{{2}}){{1,50}}{COMMA}\d{{3}}(?!\d)",
        rf"{BEHIND_SPACE}{LEADING}\d{{1,3}}(?:{SPACE}\d{{3}}){{1,100}}(?!\d|{SPACE}\d)",
        rf"{LEADING}\d{{1,3}}(?:{APOSTROPHE}\d{{3}}){{1,100}}(?!\d)",
        rf"{LEADING}\d{{1,3}}(?:\\?_\d{{3}}){{1,100}}(?!\d)",
        rf"{LEADING}\d{{1,3}}(?:\.\d{{3}}){{2,100}}(?!\.?\d)",
        r"\d{1,300}",
    ]
)
POINT = r"[.\u066b]"
FRACTION = rf"{POINT}\d{{3}}(?:{SPACE}\d{{3}}){{1,100}}(?:{SPACE}\d{{1,2}})?(?!\d|{SPACE}\d)|{POINT}\d{{1,300}}"
MINUS = "\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d-"  # hyphens, dashes of a digit's width, minus signs
SIGN = rf"[+{MINUS}]"
SUPERSCRIPTS = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207a\u207b"
PLAIN_EXPONENT = str.maketrans(SUPERSCRIPTS, "0123456789+-")
SHORT = rf"{SIGN}?\d{{1,3}}(?!\d)"
SET = rf"\{{{SPACE}?{SIGN}?{SPACE}?\d{{1,3}}{SPACE}?\}}"  # as LaTeX sets an exponent
UPRIGHT = r"(?:\\,)?\\(?:mathrm|text|textrm) ?\{[eE]\}(?:\\,)?"
TIMES = rf"{SPACE}{{0,2}}\{{?(?:\\times|\\cdot|\\ast|[*xX\u00d7\u00b7\u22c5\u2219\u2022\u2217\u2715\u2716])\}}?{SPACE}{{0,2}}"  # noqa: E501
POWER = (
    rf"(?:10|\{{10\}}) ?(?:(?:\^|\*\*) ?(?P<power>{SET}|\( ?{SIGN}? ?\d{{1,3}} ?\)|{SHORT})"
    rf"|<sup>(?P<tag>{SIGN}?\d{{1,3}})</sup>|(?P<raised>[\u207a\u207b]?[{SUPERSCRIPTS[:10]}]{{1,3}})(?![{SUPERSCRIPTS}]))"
)
CURRENCY = "(?P<currency>\\\\?\\$ ?|[\u20ac\u00a3\u00a5\u20b9] ?)?"
PERCENT = rf"(?P<percent>{SPACE}?\\?%)?"
EXPONENT = rf"(?:(?:[eE]|{UPRIGHT})(?P<e>{SHORT}|{SET})(?!\.?\d)|{TIMES}{POWER})"
NAMED = (
    rf"(?>{CURRENCY}(?:{POWER.replace('P<', 'P<bare_')}"
    rf"|(?:(?P<whole>{WHOLE})(?P<fraction>{FRACTION}|\{{,\}}\d{{1,300}})?|(?P<only>{FRACTION})){EXPONENT}?){PERCENT})"
)
UNSIGNED = re.sub(r"\?P<\w+>", "?:", NAMED)
BEFORE_SIGN = r"(?:(?<=[=\u2248:(*])|(?<=[=\u2248:(*] )|(?<= is ))"
SIGNED = rf"(?:(?<![\w.)\]}}]){SIGN}|{BEFORE_SIGN}{SIGN}{SPACE})?"
NUMBER = re.compile(SIGNED + UNSIGNED)
PARTS = re.compile(rf"(?:(?P<sign>{SIGN}){SPACE}?)?{NAMED}")
SIGN_APART = re.compile(rf"({SIGN})(?:{SPACE})+(?=[\d.$])")
SPOKEN_SIGN = re.compile(rf"(?:\b[Nn]egative |{BEFORE_SIGN}minus )(?=[\d.$])")
INVISIBLE = dict.fromkeys([0xAD, *range(0x200B, 0x2010), 0x2060, 0xFEFF])  # letters without a width
EXPONENTS = ("e", "power", "tag", "raised", "bare_power", "bare_tag", "bare_raised")
WITHIN = re.compile(
    rf"(?<![\w^\\}}]){NAMED}"
)  # not behind a command such as `\frac12 000`, whose arguments are single digits
AS_IS = re.compile(r"[0-9]+(?:,[0-9]{2,3})*(?:\.[0-9]+)?|\.[0-9]+")
VULGAR = {sign: unicodedata.normalize("NFKC", sign).split("\u2044") for sign in "¼½¾⅐⅑⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"}
BEFORE_MIXED = r"(?<![\w.,/^}])(\d{1,9})"
MIXED = re.compile(rf"{BEFORE_MIXED} (\d{{1,3}})/(\d{{1,3}})(?![\w/^])")
MIXED_VULGAR = re.compile(rf"(?:{BEFORE_MIXED} ?)?([{''.join(VULGAR)}])")
SIUNITX = re.compile(r"\\(?:num|numprint|SI|qty) ?\{([^{}]*)\}(?:\{[^{}]*\})?")  # `\num{3e8}`, `\SI{3e8}{m}`
BARE_POINT = re.compile(r"(?<=\d)\.(?=/)")  # as in -1./3
EULER = re.compile(r"(?<![A-Za-z\\])e(?![A-Za-z])")


class Parts(NamedTuple):
    """A number's sign, its digits before and behind the point, its exponent, and whether it is in percent."""

    sign: str
    whole: str
    fraction: str
    exponent: int
    percent: bool

    @property
    def value(self) -> Fraction:
        """The number, whose percent sign is left out of account."""
        digits = Fraction(int(f"{self.sign}{self.whole}{self.fraction}"), 10 ** len(self.fraction))
        return digits * Fraction(10) ** self.exponent

    @property
    def plain(self) -> str:
        """The number in digits, with a point at most, as `-0.00001`; zeros at its end stay."""
        digits = self.whole + self.fraction
        point = len(self.whole) + self.exponent
        digits = digits.rjust(len(digits) - point + 1, "0") if point < 1 else digits.ljust(point, "0")
        point = max(point, 1)
        return self.sign + digits[:point] + ("." + digits[point:] if digits[point:] else "")


def find_numbers(text: str) -> list[str]:
    """Every number in `text` as written, in order; `negative 5` is -5."""
    return NUMBER.findall(SPOKEN_SIGN.sub("-", text.translate(INVISIBLE)))


def parse_number_parts(text: str) -> Parts | None:
    """What the whole text is made of where it is one number, spaces around it aside; else None."""
    match = PARTS.fullmatch(text.strip())
    return None if match is None else _build_number_parts(match, match["sign"] or "")


def parse_number_ignoring_percent(text: str) -> Fraction | None:
    """The number that the whole text is, `50%` as 50; None where it is anything else."""
    written = parse_number_parts(text)
    return None if written is None else written.value


def parse_number_or_none(text: str) -> Fraction | None:
    """The number that the whole text is, `50%` as 1/2; None where it is anything else, as a formula, a letter or an
    empty text.
    """
    written = parse_number_parts(text)
    return None if written is None else written.value / (100 if written.percent else 1)


def parse_number(text: str) -> Fraction:
    """The number that `numbers` has taken from a text, percent divided by 100."""
    value = parse_number_or_none(text)
    if value is None:
        raise ValueError(f"{text[:80]!r} is no number")
    return value


def count_decimals(text: str) -> int:
    """How many digits behind the point of its value a number as written shows, 0 where it is written without a
    point.
    """
    written = parse_number_parts(text)
    if written is None or not written.fraction:
        return 0
    return max(0, len(written.fraction) - written.exponent + 2 * written.percent)


def is_same_number(a: str, b: str) -> bool:
    """True when both texts are one number: "1,000", "1e3" and "$1000" are the same, "50%" is also "50"."""
    value = parse_number_ignoring_percent(a)
    return value is not None and value == parse_number_ignoring_percent(b)


def rewrite_numbers_for_latex(text: str, powers_of_e: bool = True) -> str:
    """A text in which numbers are written so that LaTeX's readers take them for what they are; all else stays.

    Groups are joined, `3e8` is 300000000, `1½` and `1 1/2` are `\\frac{3}{2}`. With `powers_of_e` false `2e-3`
    stays: beside a formula with Euler's number it is a difference.
    """
    text = SIUNITX.sub(r"\1", text.translate(INVISIBLE))
    text = BARE_POINT.sub(
        "", text.replace("\u2044", "/").replace("°", r"^\circ").replace("~", " ").replace("\u2248", "")
    )
    text = MIXED_VULGAR.sub(lambda match: _format_mixed_fraction(match[1] or "0", *VULGAR[match[2]]), text)
    text = MIXED.sub(
        lambda match: _format_mixed_fraction(*match.groups()) if int(match[2]) < int(match[3]) else match[0], text
    )
    return WITHIN.sub(lambda match: _rewrite_number_match(match, powers_of_e), text)


def _format_mixed_fraction(whole: str, above: str, below: str) -> str:
    return rf"\frac{{{int(whole) * int(below) + int(above)}}}{{{below}}}"


def _rewrite_number_match(match: re.Match[str], powers_of_e: bool) -> str:
    currency = match["currency"] or ""
    percent = match["percent"] or ""
    times = any(match[name] for name in ("power", "tag", "raised"))
    if times and match.string[match.start() - 1 : match.start()] == "/":  # the product is not the divisor
        return match[0]
    if AS_IS.fullmatch(match[0][len(currency) :].removesuffix(percent)) or (match["e"] and not powers_of_e):
        return match[0]
    written = _build_number_parts(match, "")
    plain = written.plain if match["whole"] or match["only"] else f"10^{{{written.exponent}}}"
    return currency + plain + percent


def _build_number_parts(match: re.Match[str], sign: str) -> Parts:
    exponent = next((match[name] for name in EXPONENTS if match[name] is not None), "0").translate(PLAIN_EXPONENT)
    negative = any(sign in MINUS for sign in exponent)
    bare = match["whole"] is None and match["only"] is None
    return Parts(
        "-" if sign and sign in MINUS else "",
        "1" if bare else _normalise_digits(match["whole"]),
        _normalise_digits(match["fraction"] or match["only"]),
        int(_normalise_digits(exponent)) * (-1 if negative else 1),
        match["percent"] is not None,
    )


def _normalise_digits(text: str | None) -> str:
    """The digits of a text, those of other scripts as 0 to 9."""
    return "".join(str(int(sign)) for sign in text or "" if sign.isdecimal())
