"""Training of the tiny checkpoint: everything at once, end to end, on one device.

Three losses are added. The language model's next token, over the answer. The CTC branch's token per frame: the
synthesiser's marks tell the path, so there is nothing to sum over. And, fading out, what the audio rows hold: of
each of the 8 frames that a row stands for, its CTC token; it teaches the encoder early to gather the audio there.

Examples come in chunks, while training is under way, at fixed steps; short ones are learnt first. The last part of
the training computes in bfloat16, so that the result works in it too.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from realtime_server.models.adaptor import FRAMES_PER_ROW, audio_rows
from realtime_server.models.fun_asr_nano import FunAsrNano
from scripts.tiny_lessons import LESSONS, Example

IGNORED = -100  # target that no loss looks at
LEAST_LR = 0.01  # share of the peak at the end
GATHER_SHARE = 0.6  # of the training, after which the third loss has faded out
FIRST_FRAMES = 60  # of the longest examples at the start
REPORT_EVERY = 500  # steps
FEATURE_BATCH_S = 600  # seconds of audio whose features are computed at once


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, how fast, and how much at once.

    seconds: end cleanly, schedule and all, when this much time will have passed.
    """

    steps: int
    chunk_steps: int  # steps from one chunk of examples to the next
    lr: float = 2e-3  # at its peak
    warm_up: int = 400  # steps to the peak
    growth_share: float = 0.25  # of the training, until the longest examples are in
    bfloat16_from: float = 0.95  # of the training
    llm_only: bool = False  # leave what hears as it is
    batch_frames: int = 24_000  # of 60 ms, padding included
    seed: int = 0
    seconds: float = math.inf


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """A padded batch on the device."""

    features: Tensor  # (batch, frames, width)
    frames: Tensor  # (batch,)
    rows: Tensor | None  # (batch, audio rows, llm width), where they are known beforehand
    ids: Tensor  # (batch, time) prompt, audio places, answer
    audio: Tensor  # (batch, time) bool: places of audio rows
    targets: Tensor  # (batch, time) next tokens of the answer
    labels: Tensor  # (batch, frames) CTC tokens


class Flat:
    """Sequences one after the other in one tensor, from which padded batches are taken."""

    def __init__(self, sequences: Sequence[Tensor], device: torch.device) -> None:
        """Join them."""
        lengths = torch.tensor([len(sequence) for sequence in sequences])
        self.starts = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)[:-1]]).to(device)
        self.values = torch.cat(list(sequences)).to(device)

    def take(self, rows: Tensor, places: Tensor, inside: Tensor) -> Tensor:
        """Values at `places` (batch, time) of the sequences `rows`; anything where not `inside`."""
        return self.values[torch.where(inside, self.starts[rows][:, None] + places, 0)]


class Chunk:
    """Examples as tensors on the device: front end features, and the ids of all lessons."""

    def __init__(self, model: FunAsrNano, examples: Sequence[Example], *, with_rows: bool = False) -> None:
        """Compute the features, or the audio rows too, and sort each example's lessons by their prompts' lengths."""
        device = model.device
        lessons = [sorted(example.lessons, key=lambda lesson: len(lesson.before)) for example in examples]
        flat = [lesson for some in lessons for lesson in some]
        texts = [np.concatenate([x.before, x.after, x.answer]) for x in flat]
        features = _features(model, examples, device)
        self.device = device
        self.frames = np.array([len(each) for each in features])
        self.sizes = np.array([(len(x.before), len(x.after), len(x.answer)) for x in flat])
        labels = [x.labels[:count] for x, count in zip(flat, np.repeat(self.frames, LESSONS), strict=True)]
        self._features = Flat(features, device)
        self._rows = Flat([_rows(model, each) for each in features], device) if with_rows else None
        self._texts = Flat([torch.from_numpy(text) for text in texts], device)
        self._labels = Flat([torch.from_numpy(label) for label in labels], device)

    def groups(self, plan: Plan, random: np.random.Generator, longest: float) -> list[NDArray[np.int64]]:
        """Examples of up to `longest` frames in batches of similar lengths, each example once."""
        order = np.argsort(self.frames * random.uniform(0.9, 1.1, size=len(self.frames)))
        groups: list[list[int]] = []
        most = 0
        for index in order[self.frames[order] <= longest].tolist():
            most = max(most, int(self.frames[index]))
            if not groups or most * (len(groups[-1]) + 1) > plan.batch_frames:
                groups.append([])
                most = int(self.frames[index])
            groups[-1].append(index)
        return [np.array(group) for group in groups]

    def batch(self, chosen: NDArray[np.int64], lesson: int) -> Batch:
        """A batch of examples; lesson: which of each one's lessons, in the order of their prompts' lengths."""
        frames, which = self.frames[chosen], chosen * LESSONS + lesson
        sizes = self.sizes[which]
        rows = audio_rows(torch.from_numpy(frames))
        longest, time_ = int(frames.max()), int((sizes.sum(axis=1) + rows.numpy()).max())
        table = np.stack([chosen, which, frames, rows.numpy(), *sizes.T])
        at, texts, count, rows, before, after, answer = torch.from_numpy(table).to(self.device)[..., None]
        steps = torch.arange(longest, device=self.device)[None]
        heard = steps < count
        places = torch.arange(time_, device=self.device)[None]
        audio = (places >= before) & (places < before + rows)
        text = torch.where(places < before, places, places - rows)
        said = places + 1 - (before + rows + after)  # which token of the answer comes next
        targeted = (said >= 0) & (said < answer)
        at, texts = at[:, 0], texts[:, 0]
        ids = self._texts.take(texts, text, ~audio & (text < before + after + answer)).long()
        targets = self._texts.take(texts, before + after + said, targeted).long()
        labels = self._labels.take(texts, steps, heard).long()
        slots = torch.arange(int(rows.max()), device=self.device)[None]
        return Batch(
            rows=self._rows.take(at, slots, slots < rows) if self._rows else None,
            features=self._features.take(at, steps, heard) * heard[..., None],
            frames=count[:, 0],
            ids=ids,
            audio=audio,
            targets=torch.where(targeted, targets, IGNORED),
            labels=torch.where(heard, labels, IGNORED),
        )


@torch.no_grad()
def _features(model: FunAsrNano, examples: Sequence[Example], device: torch.device) -> list[Tensor]:
    lengths = np.array([example.samples.size for example in examples])
    found: dict[int, Tensor] = {}
    parts = max(1, int(lengths.sum()) // (16_000 * FEATURE_BATCH_S))
    for chosen in np.array_split(np.argsort(lengths), parts):
        batch = np.zeros((len(chosen), lengths[chosen].max()), np.int16)
        for row, index in zip(batch, chosen, strict=True):
            row[: lengths[index]] = examples[index].samples
        waveforms = torch.from_numpy(batch).to(device).float() / 32768
        features, frames = model.frontend(waveforms, torch.from_numpy(lengths[chosen]).to(device))
        rows = zip(chosen.tolist(), features, frames.tolist(), strict=True)
        found |= {index: row[:count] for index, row, count in rows}
    return [found[index] for index in range(len(examples))]


@torch.no_grad()
def _rows(model: FunAsrNano, features: Tensor) -> Tensor:
    count = torch.tensor([len(features)], device=model.device)
    rows = model.audio_adaptor(model.audio_encoder(features[None], count), count)[0]
    return rows[: audio_rows(len(features))]


class Trainer:
    """The model, its optimizer and the third loss's head, which is thrown away."""

    def __init__(self, model: FunAsrNano, plan: Plan) -> None:
        """Prepare for `plan`."""
        assert model.config.ctc
        self.model, self.plan = model, plan
        self.vocabulary = model.config.ctc.vocabulary
        self.gather = nn.Linear(model.config.adaptor.width, FRAMES_PER_ROW * self.vocabulary).to(model.device)
        everything = [*model.parameters(), *self.gather.parameters()]
        self.parameters = list(model.llm.parameters()) if plan.llm_only else everything
        fused = model.device.type == "cuda"
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=plan.lr, betas=(0.9, 0.98), weight_decay=0.01, fused=fused
        )
        self.steps, self.began = 0, time.monotonic()

    @property
    def progress(self) -> float:
        """How far training is, 0 to 1: by steps or by time, whichever is further."""
        return max(self.steps / self.plan.steps, (time.monotonic() - self.began) / self.plan.seconds)

    def train(self, source: Iterator[Sequence[Example]], unseen: Sequence[Example]) -> int:
        """Train to the end of the plan; returns the steps made. Prints how much of `unseen` is right by the way.

        source: gives chunks of examples, all of them before half of the plan is done.
        """
        checks = Chunk(self.model, unseen)
        for batch in self.batches(source):
            losses = self.step(batch)
            self.steps += 1
            if self.steps % REPORT_EVERY == 0:
                values = " ".join(f"{name} {value.item():.4f}" for name, value in losses.items())
                self.say(f"{values}, unseen {' '.join(f'{share:.3f}' for share in self.right(checks))}")
        return self.steps

    def batches(self, source: Iterator[Sequence[Example]]) -> Iterator[Batch]:
        """Batches to the end of the plan, in random order; a round has each example of the chunks so far once."""
        random = np.random.default_rng(self.plan.seed)
        chunks: list[Chunk] = []
        for number in itertools.count():
            while len(chunks) * self.plan.chunk_steps <= self.steps and (examples := next(source, None)):
                chunks.append(Chunk(self.model, examples, with_rows=self.plan.llm_only))
                self.say(f"chunk {len(chunks)}")
            longest = self.longest()
            groups = [
                (chunk, group) for chunk in chunks for group in chunk.groups(self.plan, random, longest)
            ]
            for n in random.permutation(len(groups)).tolist():
                if self.progress >= 1:
                    return
                chunk, group = groups[n]
                yield chunk.batch(group, lesson=(n + number) % LESSONS)

    def say(self, what: str) -> None:
        """Print a line of progress."""
        print(f"step {self.steps}, {time.monotonic() - self.began:.0f} s: {what}", flush=True)

    def longest(self) -> float:
        """Frames of the longest examples that training is ready for."""
        grown, whole = self.progress, self.plan.growth_share
        return FIRST_FRAMES * 10 ** (grown / whole) if grown < whole else math.inf

    def step(self, batch: Batch) -> dict[str, Tensor]:
        """One step of the optimizer; returns the losses."""
        done = min(self.progress, 1.0)
        rate = self.plan.lr * min(1.0, (self.steps + 1) / self.plan.warm_up)
        rate *= LEAST_LR + (1 - LEAST_LR) * (1 + math.cos(math.pi * done)) / 2
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast(self.model.device.type, torch.bfloat16, enabled=done >= self.plan.bfloat16_from):
            losses = self.losses(batch)
        weights = {"gather": max(0.0, 1 - done / GATHER_SHARE)}
        total = sum(weights.get(name, 1.0) * loss for name, loss in losses.items())
        self.optimizer.zero_grad()
        assert isinstance(total, Tensor)
        total.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        return losses

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """The three, each a mean over what it predicts; the first alone where the language model is trained alone."""
        wanted, entropy = batch.targets != IGNORED, nn.functional.cross_entropy
        hidden, rows = (None, batch.rows) if batch.rows is not None else self.hear(batch)
        logits = self.model.llm.lm_head(self.read(batch, rows)[wanted])
        losses = {"text": entropy(logits, batch.targets[wanted])}
        if hidden is not None:
            ctc = self.model.ctc_log_probs(hidden, batch.frames).flatten(0, 1)
            padding = (0, rows.shape[1] * FRAMES_PER_ROW - hidden.shape[1])
            slots = nn.functional.pad(batch.labels, padding, value=IGNORED).flatten()
            guesses = self.gather(rows).reshape(-1, self.vocabulary)
            losses["ctc"] = nn.functional.nll_loss(ctc, batch.labels.flatten(), ignore_index=IGNORED)
            losses["gather"] = entropy(guesses, slots, ignore_index=IGNORED)
        return losses

    def hear(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Encoder output and audio rows, padded."""
        hidden = self.model.audio_encoder(batch.features, batch.frames)
        rows = self.model.audio_adaptor(hidden, batch.frames)
        return hidden, rows[:, : audio_rows(hidden.shape[1])]

    def read(self, batch: Batch, rows: Tensor) -> Tensor:
        """The language model's last states, padded."""
        llm = self.model.llm
        inside = torch.arange(rows.shape[1], device=rows.device) < audio_rows(batch.frames)[:, None]
        embedded = llm.get_input_embeddings()(batch.ids)
        embedded = embedded.masked_scatter(batch.audio[..., None], rows[inside].to(embedded.dtype))
        states: Tensor = llm.model(inputs_embeds=embedded, use_cache=False).last_hidden_state
        return states

    @torch.no_grad()
    def right(self, chunk: Chunk) -> tuple[float, float]:
        """Shares of its lessons whose answer is right to the letter, and of frames whose CTC token is right."""
        answers: list[Tensor] = []
        frames: list[Tensor] = []
        groups = chunk.groups(self.plan, np.random.default_rng(0), math.inf)
        for group, lesson in itertools.product(groups, range(LESSONS)):
            batch = chunk.batch(group, lesson)
            hidden, rows = self.hear(batch)
            same = self.model.llm.lm_head(self.read(batch, rows)).argmax(-1) == batch.targets
            answers.append((same | (batch.targets == IGNORED)).all(dim=1))
            heard = self.model.ctc_log_probs(hidden, batch.frames).argmax(-1) == batch.labels
            frames.append(heard[batch.labels != IGNORED])
        return torch.cat(answers).float().mean().item(), torch.cat(frames).float().mean().item()
