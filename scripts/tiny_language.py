"""The little language that the tiny checkpoint knows: what can be said in it, and how each saying is written.

Said is a sequence of units: digits, words, words that both languages have, and invented names. Written depends on
what the prompt asks for:

- ITN on: digits as numerals ("123") and a full stop at the end; ITN off: as words ("one two three", "一二三"), none.
- A language, Chinese or English: digits and the words that both languages have are written in it, whatever was
  spoken ("coffee" becomes "咖啡"). None: as spoken. Every other word has one language only.
- Translation: everything is written in English, word by word, names of Mandarin in Pinyin.
- Hotwords: a name has two spellings that sound the same. The second is written if it is among the hotwords and the
  first is not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

Language = Literal["en", "zh"]


@dataclass(frozen=True, slots=True)
class Unit:
    """Something that can be said.

    sound: what espeak-ng is given, one mark per part: an English word, or a syllable of Pinyin.
    en, zh: how it is written in either language; None if only the other one has it.
    english: how it is translated, where `en` is None.
    """

    language: Language  # it is spoken in
    sound: str
    en: str | None = None
    zh: str | None = None
    digit: str | None = None  # the numeral
    second: str | None = None  # the other spelling of a name
    english: str | None = None

    @property
    def marks(self) -> int:
        """How many marks the synthesiser gives it."""
        return len(self.sound.split())

    def spelling(self, language: Language, hotwords: Collection[str]) -> str:
        """Written in `language` if that has it, names as the hotwords say."""
        first = (self.en or self.zh) if language == "en" else (self.zh or self.en)
        assert first
        return self.second if self.second and self.second in hotwords and first not in hotwords else first

    def translation(self, hotwords: Collection[str]) -> str:
        """Written in English, names of English as the hotwords say."""
        return self.english or self.spelling("en", hotwords)


@dataclass(frozen=True, slots=True)
class Piece:
    """A word, character or numeral of a text, and which part of the unit it is: from `begin` to `end`, in marks."""

    text: str
    unit: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Style:
    """What the prompt asks for."""

    itn: bool = True
    language: Language | None = None
    hotwords: tuple[str, ...] = ()
    translated: bool = False


PLAIN = Style()

_DIGITS_EN = "zero one two three four five six seven eight nine".split()
_DIGITS_ZH = "零 ling2,一 yi1,二 er4,三 san1,四 si4,五 wu3,六 liu4,七 qi1,八 ba1,九 jiu3".split(",")
_WORDS_EN = """hello open close window music weather tomorrow morning river garden yellow computer number please
    kitchen station""".split()
_WORDS_ZH = """你好 ni3 hao3,打开 da3 kai1,关闭 guan1 bi4,窗户 chuang1 hu4,音乐 yin1 yue4,天气 tian1 qi4,
    明天 ming2 tian1,早上 zao3 shang4,电脑 dian4 nao3,号码 hao4 ma3,谢谢 xie4 xie4,老师 lao3 shi1,
    朋友 peng2 you3,北京 bei3 jing1,上海 shang4 hai3,苹果 ping2 guo3""".split(",")
_TRANSLATED = """hello open close window music weather tomorrow morning computer number thanks teacher friend Beijing
    Shanghai apple""".split()
_SHARED = "coffee 咖啡 ka1 fei1,sofa 沙发 sha1 fa1,pizza 披萨 pi1 sa4,chocolate 巧克力 qiao3 ke4 li4".split(
    ","
)
_NAMES_EN = "Kaylin Caylyn,Talvo Tallvoe,Brodik Brodyck,Senna Cenna,Fenwik Phenwick,Marlo Marlow".split(",")
_NAMES_ZH = """林小雨 林晓宇 lin2 xiao3 yu3,张伟 章炜 zhang1 wei3,陈静 陈敬 chen2 jing4,周明 周鸣 zhou1 ming2,
    王芳 王方 wang2 fang1,李娜 里娜 li3 na4""".split(",")
_NAMES_TRANSLATED = "Lin Xiaoyu,Zhang Wei,Chen Jing,Zhou Ming,Wang Fang,Li Na".split(",")


def _chinese(entry: str) -> tuple[str, str]:
    writing, sound = entry.strip().split(" ", 1)
    return writing, sound


def _digits() -> tuple[Unit, ...]:
    chinese = [_chinese(entry) for entry in _DIGITS_ZH]
    forms = [
        (str(n), en, zh, sound) for n, (en, (zh, sound)) in enumerate(zip(_DIGITS_EN, chinese, strict=True))
    ]
    english = tuple(Unit("en", en, en, zh, digit=digit) for digit, en, zh, _ in forms)
    return english + tuple(Unit("zh", sound, en, zh, digit=digit) for digit, en, zh, sound in forms)


def _words() -> tuple[Unit, ...]:
    units = [Unit("en", word, en=word) for word in _WORDS_EN]
    chinese = zip(map(_chinese, _WORDS_ZH), _TRANSLATED, strict=True)
    units += [Unit("zh", sound, zh=writing, english=english) for (writing, sound), english in chinese]
    for entry in _SHARED:
        en, zh, sound = entry.split(" ", 2)
        units += [Unit("en", en, en, zh), Unit("zh", sound, en, zh)]
    return tuple(units)


def _names() -> tuple[Unit, ...]:
    units = []
    for entry in _NAMES_EN:
        first, second = entry.split(" ")
        units.append(Unit("en", first, en=first, second=second))
    for entry, english in zip(_NAMES_ZH, _NAMES_TRANSLATED, strict=True):
        first, second, sound = entry.strip().split(" ", 2)
        units.append(Unit("zh", sound, zh=first, second=second, english=english))
    return tuple(units)


DIGITS, WORDS, NAMES = _digits(), _words(), _names()
UNITS = (*DIGITS, *WORDS, *NAMES)


def say(text: str, language: Language) -> list[Unit]:
    """The units of a text written without spaces between Chinese words, numerals as digits: "open 12", "打开12".

    Raises ValueError at the first thing that the language has no unit for.
    """
    spoken = [unit for unit in UNITS if unit.language == language]
    writings = {unit.spelling(language, ()): unit for unit in spoken}
    writings |= {unit.digit: unit for unit in spoken if unit.digit}
    units, rest = [], text.strip()
    while rest:
        known = max((key for key in writings if rest.startswith(key)), key=len, default=None)
        if known is None:
            raise ValueError(f"the little language has no {rest!r}")
        units.append(writings[known])
        rest = rest.removeprefix(known).strip()
    return units


def pieces(units: Sequence[Unit], style: Style = PLAIN) -> list[Piece]:
    """What is written for the units, piece by piece, without the full stop; joined they are the text."""
    found: list[Piece] = []
    before = ""  # the text so far
    for index, unit in enumerate(units):
        numeral = unit.digit if style.itn else None
        writing = numeral or _writing(unit, style)
        joined = not before or _is_chinese(writing[0]) or _is_chinese(before[-1])
        joined |= numeral is not None and before[-1:].isdigit()
        parts = list(writing) if _is_chinese(writing[0]) else [writing]
        step = unit.marks / len(parts)
        for n, part in enumerate(parts):
            space = "" if n or joined else " "
            found.append(Piece(space + part, index, n * step, (n + 1) * step))
        before += found[-1].text
    return found


def written(units: Sequence[Unit], style: Style = PLAIN) -> str:
    """The whole text of what was said."""
    text = "".join(piece.text for piece in pieces(units, style))
    if not text or not style.itn:
        return text
    if style.translated:
        return f"{text}."
    language = style.language if style.language and units[-1].digit else units[-1].language
    stop = "。" if _is_chinese(text[-1]) or (text[-1].isdigit() and language == "zh") else "."
    return text + stop


def _writing(unit: Unit, style: Style) -> str:
    if style.translated:
        return unit.translation(style.hotwords)
    return unit.spelling(style.language or unit.language, style.hotwords)


def _is_chinese(character: str) -> bool:
    return "\u4e00" <= character <= "\u9fff"


def words(written_pieces: Sequence[Piece]) -> list[list[Piece]]:
    """The pieces grouped as words have times: a Chinese character, a number, a word between spaces."""
    groups: list[list[Piece]] = []
    for piece in written_pieces:
        before = groups[-1][-1].text[-1] if groups else ""
        if not groups or piece.text[0] == " " or _is_chinese(piece.text[0]) or _is_chinese(before):
            groups.append([])
        groups[-1].append(piece)
    return groups
