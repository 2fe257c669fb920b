"use strict";

// The transcript as files. Each takes the transcript's sessions; subtitles have one time line, so there the sessions
// lie one behind the other.

const LINE_COLUMNS = 42;       // of a subtitle
const CUE_LINES = 2;
const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6]/;
const WIDE_COLUMNS = 2.5;

function oneLine(text) { return text.replace(/\s+/g, " ").trim(); }

function nameOf(session, speaker) {
  return speaker === undefined || speaker === null ? "" : Transcript.speakerName(session, speaker);
}

function toText(sessions, withTimes) {
  const time = (ms) => (withTimes ? `[${clock(ms)}] ` : "");
  const blocks = sessions.map((session) => {
    const lines = session.sentences.map(({ said }) => {
      const name = nameOf(session, said.speaker);
      return time(said.start_ms) + (name && `${name}: `) + (said.text.replace(/\s*\n\s*/g, " ") || NOT_RECOGNIZED);
    });
    if (session.divider) lines.unshift(session.divider.textContent);
    for (const { text, startMs } of session.unconfirmed) lines.push(`${time(startMs)}${NOT_CONFIRMED} ${text}`);
    return lines.join("\n");
  });
  return blocks.join("\n\n") + "\n";
}

function toJson(sessions) {
  const plain = sessions.map((session) => ({
    session: session.id,
    began: session.began.toISOString(),
    duration_ms: Math.round(session.heardMs),
    language: session.language,
    speakers: Object.fromEntries(session.names),
    sentences: session.sentences.map(({ said }) => ({
      id: said.id, channel: said.channel, segment: said.segment, text: said.text, start_ms: said.start_ms, end_ms: said.end_ms,
      language: said.language, confidence: said.confidence, speaker: said.speaker, name: nameOf(session, said.speaker) || null,
      flags: said.flags, words: said.words ?? null,
    })),
    unconfirmed: session.unconfirmed.map(({ text, startMs }) => ({ text, start_ms: startMs })),
  }));
  return `${JSON.stringify({ sessions: plain }, null, 2)}\n`;
}

// ---------------------------------------------------------------- subtitles

// The lines of a text, as [from, to] of its characters; breaks are at spaces, or anywhere in scripts without them.
function breakLines(text) {
  const lines = [];
  let columns = 0;
  for (const { 0: part, index } of text.matchAll(/\s+|[^\s]/gu)) {
    if (/\s/.test(part)) {
      columns += 1;
      continue;
    }
    const before = text[index - 1];
    const mayBreak = index > 0 && (/\s/.test(before) || WIDE.test(part) || WIDE.test(before)) && !/[，。、！？；：」』）]/.test(part);
    const word = mayBreak ? wordColumns(text, index) : 0;
    if (!lines.length || (mayBreak && columns + word > LINE_COLUMNS)) {
      lines.push([index, index]);
      columns = 0;
    }
    columns += WIDE.test(part) ? WIDE_COLUMNS : 1;
    lines.at(-1)[1] = index + part.length;
  }
  return lines;
}

function wordColumns(text, index) {
  if (WIDE.test(text[index])) return WIDE_COLUMNS;
  let end = index;
  while (end < text.length && !/\s/.test(text[end]) && !WIDE.test(text[end])) end += 1;
  return end - index;
}

// When the character at `place` is spoken: by the words' times, else as if all took the same time.
function timeAt({ text, start_ms, end_ms }, placed, place, isEnd) {
  const word = isEnd ? placed.findLast(({ from }) => from < place) : placed.find(({ to }) => to > place);
  const ms = word ? word[isEnd ? "end_ms" : "start_ms"] : start_ms + (end_ms - start_ms) * place / text.length;
  return Math.min(Math.max(Math.round(ms), start_ms), end_ms);
}

// What is shown when: {startMs, endMs, name, lines}, in order and one at a time.
function cuesOf(sessions) {
  const cues = [];
  let offsetMs = 0, lastMs = 0;
  for (const session of sessions) {
    const texts = session.sentences.map(({ said }) => ({ ...said, text: oneLine(said.text), name: nameOf(session, said.speaker) }));
    for (const { text, startMs } of session.unconfirmed) {
      texts.push({ text: oneLine(`${NOT_CONFIRMED} ${text}`), start_ms: startMs, end_ms: Math.max(startMs, Math.round(session.heardMs)), name: "" });
    }
    for (const said of texts.filter(({ text }) => text)) {
      const placed = placeWords(said.text, said.words);
      const lines = breakLines(said.text);
      for (let at = 0; at < lines.length; at += CUE_LINES) {
        const these = lines.slice(at, at + CUE_LINES);
        const first = at === 0 ? said.start_ms : timeAt(said, placed, these[0][0], false);
        const last = at + CUE_LINES >= lines.length ? said.end_ms : timeAt(said, placed, these.at(-1)[1], true);
        const startMs = Math.max(lastMs, offsetMs + first);
        lastMs = Math.max(startMs + 1, offsetMs + last);
        cues.push({ startMs, endMs: lastMs, name: said.name, lines: these.map(([from, to]) => said.text.slice(from, to)) });
      }
    }
    offsetMs = Math.max(lastMs, offsetMs + Math.round(session.heardMs));
  }
  return cues;
}

function fileClock(ms, point) {
  const two = (n) => String(Math.floor(n)).padStart(2, "0");
  return `${two(ms / 3_600_000)}:${two(ms / 60_000 % 60)}:${two(ms / 1000 % 60)}${point}${String(ms % 1000).padStart(3, "0")}`;
}

// SubRip has no escapes: what parsers take for a time becomes an arrow.
function toSrt(sessions) {
  return cuesOf(sessions).map(({ startMs, endMs, name, lines }, i) => {
    const text = ((name && `${name}: `) + lines.join("\n")).replaceAll("-->", "→");
    return `${i + 1}\n${fileClock(startMs, ",")} --> ${fileClock(endMs, ",")}\n${text}\n`;
  }).join("\n");
}

function toVtt(sessions) {
  const escape = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const blocks = cuesOf(sessions).map(({ startMs, endMs, name, lines }) => {
    const voice = name && `<v ${escape(name)}>`;
    return `${fileClock(startMs, ".")} --> ${fileClock(endMs, ".")}\n${voice}${escape(lines.join("\n"))}\n`;
  });
  return ["WEBVTT\n", ...blocks].join("\n");
}

const FILES = {
  txt: { type: "text/plain", write: toText },
  srt: { type: "application/x-subrip", write: toSrt },
  vtt: { type: "text/vtt", write: toVtt },
  json: { type: "application/json", write: toJson },
};
