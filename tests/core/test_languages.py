"""Languages are found by code, by locale, and by name in English and Chinese."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_server.core.languages import CODES, chinese_name, code_of, english_name
from realtime_server.errors import ProtocolError

# The languages of Whisper's vocabulary, in its order.
WHISPER = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la "
    "mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be "
    "tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue"
)


def test_every_language_of_whisper_is_known() -> None:
    assert set(WHISPER.split()) == CODES


@pytest.mark.parametrize("code", sorted(CODES))
def test_codes_and_names_lead_back_to_the_code(code: str) -> None:
    assert code_of(code) == code_of(code.upper()) == code
    assert code_of(chinese_name(code)) == code_of(english_name(code)) == code


@pytest.mark.parametrize("name", ["", "  ", "auto", "AUTO", " Auto ", "auto detect", "自动", "自動", "none"])
def test_no_language_is_detected(name: str) -> None:
    assert code_of(name) is None


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("中文", "zh"),
        ("汉语", "zh"),
        ("漢語", "zh"),
        ("普通话", "zh"),
        ("國語", "zh"),
        ("Mandarin", "zh"),
        ("Mandarin Chinese", "zh"),
        ("chinese", "zh"),
        ("zh-CN", "zh"),
        ("zh_tw", "zh"),
        ("zh-Hans-CN", "zh"),
        ("cmn-Hans-CN", "zh"),
        ("英文", "en"),
        ("英语", "en"),
        ("英語", "en"),
        (" ENGLISH\n", "en"),
        ("ｅｎ", "en"),
        ("en-US", "en"),
        ("日文", "ja"),
        ("日语", "ja"),
        ("日本語", "ja"),
        ("粤语", "yue"),
        ("粵語", "yue"),
        ("广东话", "yue"),
        ("Cantonese", "yue"),
        ("zh-HK", "yue"),
        ("韩语", "ko"),
        ("韓文", "ko"),
        ("韩国语", "ko"),
        ("한국어", "ko"),
        ("français", "fr"),
        ("Francais", "fr"),
        ("法文", "fr"),
        ("法语", "fr"),
        ("pt-BR", "pt"),
        ("haitian  creole", "ht"),
        ("jv", "jw"),
        ("fil-PH", "tl"),
    ],
)
def test_names_and_variants(name: str, code: str) -> None:
    assert code_of(name) == code


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Frnch", "unknown language 'Frnch'; did you mean French?"),
        ("xx-XX", "unknown language 'xx-XX'; send a code such as \"en\", a name such as 中文, or auto"),
        ("葡萄牙文字", "unknown language '葡萄牙文字'; did you mean 葡萄牙文?"),
    ],
)
def test_unknown_names_are_told_the_nearest(name: str, sentence: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        code_of(name)
    assert str(caught.value) == sentence


@given(st.text())
def test_any_name_has_a_code_or_a_short_error(name: str) -> None:
    try:
        answer = code_of(name) or "en"
    except ProtocolError as error:
        answer = str(error)
    assert answer in CODES or answer.startswith("unknown language ")
    assert len(answer) < 600
    assert "\n" not in answer


@pytest.mark.parametrize(
    ("code", "name"), [("zh", "中文"), ("en", "英文"), ("ja", "日文"), ("ko", "韩文"), ("yue", "粤语")]
)
def test_chinese_name(code: str, name: str) -> None:
    assert chinese_name(code) == name
