"""Languages by code and by name, in English and Chinese.

Codes are ISO 639-1 where one exists, as Whisper's vocabulary writes them ("jw" for Javanese, "yue" for Cantonese).
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from typing import NamedTuple

from realtime_server.errors import ProtocolError

# code | names in English and in the language itself, other codes | names in Chinese; the first of each is the main one.
_TABLE = """
en  | English, eng                                        | 英文, 美式英语, 英式英语
zh  | Chinese, Mandarin, Putonghua, Mandarin Chinese, cmn, zho, chi | 中文, 汉语, 国语, 华语, 普通话
de  | German, Deutsch, deu, ger                           | 德文
es  | Spanish, Castilian, español, spa                    | 西班牙文, 西语
ru  | Russian, русский, rus                               | 俄文, 俄罗斯语
ko  | Korean, 한국어, kor                                 | 韩文, 韩国语, 朝鲜语
fr  | French, français, fra, fre                          | 法文
ja  | Japanese, 日本語, jpn, jp                           | 日文, 日本语
pt  | Portuguese, português, por                          | 葡萄牙文, 葡语
tr  | Turkish, Türkçe, tur                                | 土耳其文
pl  | Polish, polski, pol                                 | 波兰文
ca  | Catalan, Valencian                                  | 加泰罗尼亚文, 加泰隆尼亚语
nl  | Dutch, Flemish, Nederlands, nld, dut                | 荷兰文
ar  | Arabic, العربية, ara                                | 阿拉伯文
sv  | Swedish, svenska, swe                               | 瑞典文
it  | Italian, italiano, ita                              | 意大利文
id  | Indonesian, Bahasa Indonesia, ind                   | 印度尼西亚文, 印尼语
hi  | Hindi, हिन्दी, hin                                   | 印地文, 北印度语
fi  | Finnish, suomi, fin                                 | 芬兰文
vi  | Vietnamese, Tiếng Việt, vie                         | 越南文, 越语
he  | Hebrew, iw                                          | 希伯来文
uk  | Ukrainian, українська, ukr                          | 乌克兰文
el  | Greek, ell                                          | 希腊文
ms  | Malay, Bahasa Melayu, msa, may                      | 马来文, 马来西亚语
cs  | Czech, ces, cze                                     | 捷克文
ro  | Romanian, Moldavian, Moldovan                       | 罗马尼亚文, 摩尔多瓦语
da  | Danish, dansk                                       | 丹麦文
hu  | Hungarian, magyar                                   | 匈牙利文
ta  | Tamil                                               | 泰米尔文
no  | Norwegian, norsk, Bokmal, nb                        | 挪威文
th  | Thai, ไทย, tha                                      | 泰文
ur  | Urdu                                                | 乌尔都文
hr  | Croatian                                            | 克罗地亚文
bg  | Bulgarian                                           | 保加利亚文
lt  | Lithuanian                                          | 立陶宛文
la  | Latin                                               | 拉丁文
mi  | Maori                                               | 毛利文
ml  | Malayalam                                           | 马拉雅拉姆文
cy  | Welsh                                               | 威尔士文
sk  | Slovak                                              | 斯洛伐克文
te  | Telugu                                              | 泰卢固文
fa  | Persian, Farsi, فارسی, fas, per                     | 波斯文
lv  | Latvian                                             | 拉脱维亚文
bn  | Bengali, Bangla                                     | 孟加拉文
sr  | Serbian                                             | 塞尔维亚文
az  | Azerbaijani, Azeri                                  | 阿塞拜疆文
sl  | Slovenian, Slovene                                  | 斯洛文尼亚文
kn  | Kannada                                             | 卡纳达文
et  | Estonian                                            | 爱沙尼亚文
mk  | Macedonian                                          | 马其顿文
br  | Breton                                              | 布列塔尼文
eu  | Basque                                              | 巴斯克文
is  | Icelandic                                           | 冰岛文
hy  | Armenian                                            | 亚美尼亚文
ne  | Nepali                                              | 尼泊尔文
mn  | Mongolian                                           | 蒙古文, 蒙语
bs  | Bosnian                                             | 波斯尼亚文
kk  | Kazakh                                              | 哈萨克文
sq  | Albanian                                            | 阿尔巴尼亚文
sw  | Swahili                                             | 斯瓦希里文
gl  | Galician                                            | 加利西亚文
mr  | Marathi                                             | 马拉地文
pa  | Punjabi, Panjabi                                    | 旁遮普文
si  | Sinhala, Sinhalese                                  | 僧伽罗文
km  | Khmer, Cambodian                                    | 高棉文, 柬埔寨语
sn  | Shona                                               | 绍纳文
yo  | Yoruba                                              | 约鲁巴文
so  | Somali                                              | 索马里文
af  | Afrikaans                                           | 南非荷兰文, 阿非利卡语
oc  | Occitan                                             | 奥克文
ka  | Georgian                                            | 格鲁吉亚文
be  | Belarusian                                          | 白俄罗斯文
tg  | Tajik                                               | 塔吉克文
sd  | Sindhi                                              | 信德文
gu  | Gujarati                                            | 古吉拉特文
am  | Amharic                                             | 阿姆哈拉文
yi  | Yiddish, ji                                         | 意第绪文
lo  | Lao                                                 | 老挝文
uz  | Uzbek                                               | 乌兹别克文
fo  | Faroese                                             | 法罗文
ht  | Haitian Creole, Haitian                             | 海地克里奥尔语, 海地语
ps  | Pashto, Pushto                                      | 普什图文
tk  | Turkmen                                             | 土库曼文
nn  | Nynorsk, Norwegian Nynorsk                          | 新挪威文
mt  | Maltese                                             | 马耳他文
sa  | Sanskrit                                            | 梵文
lb  | Luxembourgish, Letzeburgesch                        | 卢森堡文
my  | Burmese, Myanmar                                    | 缅甸文, 缅语
bo  | Tibetan                                             | 藏文
tl  | Tagalog, Filipino, fil                              | 他加禄文, 菲律宾语
mg  | Malagasy                                            | 马达加斯加文, 马尔加什语
as  | Assamese                                            | 阿萨姆文
tt  | Tatar                                               | 鞑靼文
haw | Hawaiian                                            | 夏威夷文
ln  | Lingala                                             | 林加拉文
ha  | Hausa                                               | 豪萨文
ba  | Bashkir                                             | 巴什基尔文
jw  | Javanese, jv, jav                                   | 爪哇文
su  | Sundanese                                           | 巽他文
yue | Cantonese, zh-yue, zh-hk, zh-mo                     | 粤语, 广东话, 广州话, 香港话, 白话
"""
_AUTO = frozenset(
    {"", "auto", "automatic", "autodetect", "auto-detect", "detect", "none", "自动", "自动检测", "自动识别"}
)
_SIMPLIFIED = str.maketrans(
    "語話國漢華粵廣東韓鮮羅蘭臘馬烏爾亞緬蒙檢測識別動", "语话国汉华粤广东韩鲜罗兰腊马乌尔亚缅蒙检测识别动"
)


class _Language(NamedTuple):
    code: str
    english: tuple[str, ...]
    chinese: tuple[str, ...]


def _read(row: str) -> _Language:
    code, english, chinese = row.split("|")
    return _Language(code.strip(), tuple(english.strip().split(", ")), tuple(chinese.strip().split(", ")))


def _key(name: str) -> str:
    """What a name is looked up by: the same for zh_CN and ZH-cn, français and Francais, 英语, 英文 and 英語."""
    signs = unicodedata.normalize("NFKD", name).casefold().translate(_SIMPLIFIED)
    plain = "".join(sign for sign in signs if not unicodedata.combining(sign))
    folded = "-".join(re.split(r"[\s_-]+", plain.strip()))
    return re.sub("(?<=[\u4e00-\u9fff])[文话]$", "语", folded)


_LANGUAGES = {language.code: language for language in map(_read, _TABLE.strip().splitlines())}
_CODES = {
    _key(name): language.code
    for language in _LANGUAGES.values()
    for name in (language.code, *language.english, *language.chinese)
}
_MAIN_NAMES = tuple(
    name for language in _LANGUAGES.values() for name in (language.english[0], language.chinese[0])
)
CODES = frozenset(_LANGUAGES)


def code_of(name: str) -> str | None:
    """The code of a language given by code, locale ("zh-CN") or name; None for "" and "auto": it is detected.

    Raises ProtocolError, with the nearest name, if no language is called so.
    """
    key = _key(name)
    if key in _AUTO:
        return None
    is_locale = re.fullmatch("[a-z]{2,3}(-[a-z0-9]+)+", key)
    code = _CODES.get(key) or (_CODES.get(key.split("-")[0]) if is_locale else None)
    if code is None:
        said = name.strip()[:40]
        near = difflib.get_close_matches(said.title(), _MAIN_NAMES, n=1)
        hint = (
            f"did you mean {near[0]}?" if near else 'send a code such as "en", a name such as 中文, or auto'
        )
        raise ProtocolError(f"unknown language {said!r}; {hint}")
    return code


def chinese_name(code: str) -> str:
    """The Chinese name of a language known by `code`, for prompts in Chinese."""
    return _LANGUAGES[code].chinese[0]


def english_name(code: str) -> str:
    """The English name of a language known by `code`."""
    return _LANGUAGES[code].english[0]
