"""The languages that Fun-ASR-Nano was trained on, by code.

Its card names Chinese (with dialects), English and Japanese. Checkpoints of the same shape trained on 31 languages
(Irish has no code here) carry "MLT" in their name. What a model was not trained on it answers in a wrong language.
"""

from __future__ import annotations

LANGUAGES = frozenset({"zh", "en", "ja"})
_MLT = "yue ko vi id th ms tl ar hi bg hr cs da nl et fi el hu lv lt mt pl pt ro sk sl sv"
MLT_LANGUAGES = LANGUAGES | frozenset(_MLT.split())
