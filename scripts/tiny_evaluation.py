"""How well a checkpoint of the little language hears: text, word times, language, numerals, hotwords.

Works on any `FunAsrNano` with a whole language model; greedy, one utterance at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from realtime_server.core.jobs import DecodingOptions
from realtime_server.models.fun_asr_nano import FunAsrNano
from realtime_server.models.prompt import FolderTokenizer
from scripts.synthesis import RATE, Utterance
from scripts.tiny_language import Language, Style, pieces, words, written

MOST_TOKENS = 160
SIGNS = str.maketrans("", "", " .。,，")


@dataclass(frozen=True, slots=True)
class Score:
    """Of a list of utterances. cer: wrong characters a character, signs and spaces aside; start_ms: median error."""

    cer: float
    exact: float  # share of texts that are right to the letter
    start_ms: float
    start_p90_ms: float
    wrong: tuple[tuple[str, str], ...]  # (said, heard)
    heard: tuple[str, ...]  # every text


def recognise(model: FunAsrNano, utterance: Utterance, options: DecodingOptions | None = None) -> str:
    """The text of an utterance."""
    encoded = model.encode([utterance.samples])[0]
    return answer(model, model.prompt_rows(options or DecodingOptions(), encoded))


def answer(model: FunAsrNano, rows: torch.Tensor) -> str:
    """What the language model says after a prompt's rows; greedy."""
    stop = model.tokenizer.encode("<|im_end|>")[0]
    said: list[int] = []
    with torch.inference_mode():
        result = model.llm(inputs_embeds=rows[None], use_cache=True)
        while len(said) < MOST_TOKENS and (token := int(result.logits[0, -1].argmax())) != stop:
            said.append(token)
            ids = torch.tensor([[token]], device=rows.device)
            result = model.llm(input_ids=ids, past_key_values=result.past_key_values, use_cache=True)
    assert isinstance(model.tokenizer, FolderTokenizer)
    return model.tokenizer.decode(said)


def score(model: FunAsrNano, utterances: Sequence[Utterance], style: Style | None = None) -> Score:
    """Recognise all and compare with what was said; word times are those of the text as it should be."""
    style = style or Style()
    options = DecodingOptions(language=style.language, hotwords=style.hotwords, itn=style.itn)
    wrong: list[tuple[str, str]] = []
    texts: list[str] = []
    errors = characters = 0
    starts: list[float] = []
    for utterance in utterances:
        encoded = model.encode([utterance.samples])[0]
        said = written(utterance.units, style)
        heard = answer(model, model.prompt_rows(options, encoded))
        texts.append(heard)
        if heard != said:
            wrong.append((said, heard))
        plain = said.translate(SIGNS)
        errors += edit_distance(plain, heard.translate(SIGNS))
        characters += len(plain)
        starts += start_errors_ms(model, utterance, style)
    return Score(
        cer=errors / characters,
        exact=1 - len(wrong) / len(utterances),
        start_ms=float(np.median(starts)),
        start_p90_ms=float(np.quantile(starts, 0.9)),
        wrong=tuple(wrong),
        heard=tuple(texts),
    )


def start_errors_ms(model: FunAsrNano, utterance: Utterance, style: Style) -> list[float]:
    """How far each word's start is from the synthesiser's mark; only words that begin at a mark."""
    encoded = model.encode([utterance.samples])[0]
    timed = model.align(encoded, written(utterance.units, style)) or ()
    said = words(pieces(utterance.units, style))
    if len(timed) != len(said):
        raise ValueError(f"{len(timed)} words have times, {len(said)} were said: {timed} {said}")
    return [
        abs(word.start_ms - utterance.begin_of(group[0]) * 1000 / RATE)
        for word, group in zip(timed, said, strict=True)
        if group[0].begin == int(group[0].begin)
    ]


def edit_distance(one: str, other: str) -> int:
    """Insertions, deletions and replacements from one text to the other."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def hotword_share(model: FunAsrNano, utterances: Sequence[Utterance]) -> float:
    """Share of utterances with names whose text has the second spellings once these are hotwords."""
    right = []
    for utterance in utterances:
        seconds = tuple(dict.fromkeys(unit.second for unit in utterance.units if unit.second))
        if seconds:
            heard = recognise(model, utterance, DecodingOptions(hotwords=seconds))
            right.append(heard == written(utterance.units, Style(hotwords=seconds)))
    return float(np.mean(right))


def translation_share(model: FunAsrNano, utterances: Sequence[Utterance]) -> float:
    """Share of utterances whose translation is right."""
    options, style = DecodingOptions(task="translate"), Style(translated=True)
    right = [recognise(model, each, options) == written(each.units, style) for each in utterances]
    return float(np.mean(right))


def other_language_share(model: FunAsrNano, utterances: Sequence[Utterance]) -> float:
    """Share of utterances that are right when they are asked for in the language that was not spoken."""
    right = []
    for utterance in utterances:
        language: Language = "zh" if utterance.units[0].language == "en" else "en"
        heard = recognise(model, utterance, DecodingOptions(language=language, itn=False))
        right.append(heard == written(utterance.units, Style(itn=False, language=language)))
    return float(np.mean(right))
