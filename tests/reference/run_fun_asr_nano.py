"""Runs FunASR's own modules and ours on the same random weights; started by test_fun_asr_nano_parity.py.

    python run_fun_asr_nano.py CHECKPOINT RECORDING.npy ...

CHECKPOINT is a folder in the official form. Recordings are float32, 16 kHz. The last line printed is JSON: for each
part, the greatest difference between the reference on one recording at a time and ours on all of them as one batch.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import funasr
import numpy as np
import torch
import torchaudio
import yaml
from funasr.frontends.wav_frontend import WavFrontend
from funasr.models.fun_asr_nano.ctc import CTC
from funasr.models.fun_asr_nano.model import FunASRNano
from funasr.models.fun_asr_nano.tools.utils import forced_align
from funasr.models.llm_asr.adaptor import Transformer
from funasr.models.sense_voice.model import SenseVoiceEncoderSmall
from funasr.models.sense_voice.utils.ctc_alignment import ctc_forced_align
from funasr.register import tables

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from realtime_server.core import alignment
from realtime_server.core.jobs import DecodingOptions
from realtime_server.core.languages import chinese_name
from realtime_server.models.checkpoint import Checkpoint
from realtime_server.models.fun_asr_nano import FunAsrNano
from realtime_server.models.prompt import build_prompt

PROMPTS = [
    (DecodingOptions(language=language, hotwords=hotwords, itn=itn), prefix)
    for language in (None, "zh", "en", "ja", "yue")
    for hotwords in ((), ("开放时间",), ("张三", "New York", "C++", "[x]"))
    for itn in (True, False)
    for prefix in ("", "你好，世界", "the weather is", "2025年")
]


def registered():
    """Which of the reference's classes its registry knows; its package swallows failures to import them."""
    return {
        "SenseVoiceEncoderSmall": tables.encoder_classes.get("SenseVoiceEncoderSmall")
        is SenseVoiceEncoderSmall,
        "Transformer": tables.adaptor_classes.get("Transformer") is Transformer,
        "WavFrontend": tables.frontend_classes.get("WavFrontend") is WavFrontend,
        "FunASRNano": tables.model_classes.get("FunASRNano") is FunASRNano,
        "SenseVoiceTokenizer": tables.tokenizer_classes.get("SenseVoiceTokenizer") is not None,
    }


def build_reference(folder):
    """The reference's modules with the weights of `folder`, put together as its FunASRNano does it."""
    settings = yaml.safe_load((folder / "config.yaml").read_text("utf-8"))
    weights = torch.load(folder / "model.pt", mmap=True, weights_only=True)
    frontend = WavFrontend(**settings["frontend_conf"], dither=0.0)
    encoder = SenseVoiceEncoderSmall(input_size=frontend.output_size(), **settings["audio_encoder_conf"])
    width = encoder.output_size()
    adaptor = Transformer(**settings["audio_adaptor_conf"] | {"encoder_dim": width})
    decoder = Transformer(**settings["ctc_decoder_conf"] | {"encoder_dim": width})
    blank = settings["ctc_vocab_size"] - 1
    ctc = CTC(settings["ctc_vocab_size"], width, blank_id=blank, **settings.get("ctc_conf", {}))
    for name, module in {
        "audio_encoder": encoder, "audio_adaptor": adaptor, "ctc_decoder": decoder, "ctc": ctc
    }.items():  # fmt: skip
        prefix = f"{name}."
        own = {key.removeprefix(prefix): value for key, value in weights.items() if key.startswith(prefix)}
        module.load_state_dict(own, strict=True)
        module.eval()
    vocabulary = settings["dataset_conf"]["ctc_tokenizer_conf"] | {
        "vocab_path": str(folder / "multilingual.tiktoken")
    }
    tokenizer = tables.tokenizer_classes["SenseVoiceTokenizer"](**vocabulary)
    return SimpleNamespace(
        frontend=frontend,
        encoder=encoder,
        adaptor=adaptor,
        decoder=decoder,
        ctc=ctc,
        blank=blank,
        tokenizer=tokenizer,
    )


def load_speech(reference, tokenizer, audio, prompt="", **options):
    """What the reference's FunASRNano makes of a prompt and audio, as far as it does so before its encoder."""
    model = SimpleNamespace(use_low_frame_rate=True)
    chat = FunASRNano.generate_chatml(model, prompt, audio)
    contents = FunASRNano.data_template(model, chat)
    return FunASRNano.data_load_speech(model, contents, tokenizer, reference.frontend, **options)


def align_in_torch(log_probs, targets, blank):
    """Stands in for torchaudio's aligner, which is compiled and not here: (labels, their log-probabilities)."""
    lengths = torch.tensor([log_probs.shape[1]]), torch.tensor([targets.shape[1]])
    path = ctc_forced_align(log_probs, targets.clone(), *lengths, blank=blank)
    return path, log_probs.gather(2, path[..., None])[..., 0]


def compare_networks(reference, model, recordings):
    """Greatest absolute differences, the size of what is compared, and the CTC log-probabilities of the reference."""
    differences = {"frontend": 0.0, "encoder": 0.0, "rows": 0.0, "ctc": 0.0}
    sizes = dict.fromkeys(differences, 0.0)
    row_counts, log_probs = [], []
    width = max(map(len, recordings))
    batch = torch.stack(
        [torch.nn.functional.pad(torch.from_numpy(x), (0, width - len(x))) for x in recordings]
    )
    lengths = torch.tensor([len(x) for x in recordings])
    features, frames = model.frontend(batch, lengths)
    heard = model(batch, lengths)
    for i, recording in enumerate(recordings):
        theirs, count = reference.frontend(torch.from_numpy(recording)[None], lengths[i : i + 1])
        pairs = {"frontend": (theirs[0].clone(), features[i, : frames[i]])}
        hidden, counts = reference.encoder(theirs, count)
        pairs["encoder"] = (hidden[0], heard.hidden[i, : frames[i]])
        rows = heard.row_counts[i].item()
        pairs["rows"] = (reference.adaptor(hidden, counts)[0][0, :rows], heard.rows[i, :rows])
        probabilities = reference.ctc.log_softmax(reference.decoder(hidden, counts)[0])[0]
        ours = model.ctc_log_probs(heard.hidden[i : i + 1], heard.frames[i : i + 1])[0, : frames[i]]
        pairs["ctc"] = (probabilities, ours)
        log_probs.append(probabilities)
        for name, (expected, found) in pairs.items():
            assert expected.shape == found.shape, (name, expected.shape, found.shape)
            differences[name] = max(differences[name], (expected - found).abs().max().item())
            sizes[name] = max(sizes[name], expected.abs().max().item())
        row_counts.append(rows)
    return differences, sizes, row_counts, log_probs


def compare_prompts(reference, tokenizer, model, recording, rows):
    """Prompts whose ids differ; audio rows count as zeros."""
    as_list = SimpleNamespace(encode=lambda text: list(tokenizer.encode(text)))
    different = []
    for options, prefix in PROMPTS:
        language = chinese_name(options.language) if options.language else None
        text = FunASRNano.get_prompt(None, list(options.hotwords), language, options.itn)
        audio = torch.from_numpy(recording)
        theirs = load_speech(reference, as_list, audio, text, prev_text=prefix or None)["source_ids"][
            0
        ].tolist()
        prompt = build_prompt(options, prefix)
        ours = [*tokenizer.encode(prompt.before), *[0] * rows, *tokenizer.encode(prompt.after)]
        if ours != theirs:
            different.append([str(options), prefix])
    return different


def compare_alignments(reference, model, log_probs, text):
    """Recordings in which the text's tokens lie elsewhere."""
    targets = model.ctc_tokenizer.encode(text)
    assert targets == reference.tokenizer.encode(text)
    different = []
    for i, probabilities in enumerate(log_probs):
        theirs = [
            tuple(span.values())
            for span in forced_align(probabilities, torch.tensor(targets), reference.blank)
        ]
        spans = alignment.align(probabilities.numpy(), targets, reference.blank) or []
        assert bool(spans) == (len(probabilities) >= len(targets)), (
            "only short recordings cannot hold the text"
        )
        ours = [
            (token, span.start, span.end, round(span.probability, 3))
            for token, span in zip(targets, spans, strict=bool(spans))
        ]
        if ours != theirs:
            different.append([i, ours, theirs])
    return different


def compare_row_counts(reference, model, tokenizer):
    """Lengths in tenths of a second, of 1..600, for which the reference feeds another number of audio rows."""
    different = []
    audio = torch.zeros(60 * 16_000)
    for tenths in range(1, 601):
        samples = tenths * 1_600
        theirs = load_speech(reference, tokenizer, audio[:samples])["fake_token_len"].item()
        frames = model.frontend.frames(torch.tensor([samples]))
        ours = model.audio_rows(frames).item()
        if ours != theirs:
            different.append([tenths, ours, theirs])
    return different


def main(folder, *files):
    """Print the comparison."""
    torch.set_num_threads(1)
    torchaudio.functional.forced_align = align_in_torch
    recordings = [np.load(path) for path in files]
    with contextlib.redirect_stdout(sys.stderr), torch.no_grad():
        checkpoint = Checkpoint.open(Path(folder))
        model = FunAsrNano.load(checkpoint)
        reference = build_reference(Path(folder))
        tokenizer = checkpoint.text_tokenizer()
        differences, sizes, rows, log_probs = compare_networks(reference, model, recordings)
        answer = {
            "version": funasr.__version__,
            "registered": registered(),
            "parameters": sum(p.numel() for p in model.audio_encoder.parameters()),
            "differences": differences,
            "sizes": sizes,
            "prompts": compare_prompts(reference, tokenizer, model, recordings[0], rows[0]),
            "alignments": compare_alignments(reference, model, log_probs, "hello there, 你好 the world: 42!"),
            "row_counts": compare_row_counts(reference, model, SimpleNamespace(encode=lambda text: [0])),
        }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
