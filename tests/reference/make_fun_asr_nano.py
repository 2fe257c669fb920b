"""Writes a checkpoint with random weights for a config.yaml; started by test_fun_asr_nano_parity.py.

    python make_fun_asr_nano.py FOLDER [CONFIG.yaml [short]]

Without a config.yaml the settings are the tests' own small ones. `short` leaves most layers and CTC tokens out. The
language model is its embeddings alone, as nothing else of it is compared.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.models import nano


def main(folder, config=None, size="full"):
    """Write the checkpoint."""
    folder = Path(folder)
    if config is None:
        nano.write_folder(folder)
        return
    settings = yaml.safe_load(Path(config).read_text("utf-8"))
    if size == "short":
        settings["audio_encoder_conf"] |= {"num_blocks": 4, "tp_blocks": 2}
        settings["ctc_vocab_size"] = 2_000
    nano.write_settings(folder, qwen3={"hidden_size": settings["audio_adaptor_conf"]["llm_dim"]})
    (folder / "config.yaml").write_text(yaml.safe_dump(settings), "utf-8")
    torch.save(nano.fresh_model(folder).state_dict(), folder / "model.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
