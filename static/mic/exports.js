"use strict";

// The transcript as files. Each takes the transcript's sessions; subtitles have one time line, so there the sessions
// lie one behind the other.

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

// What is shown when. named: leave room for speakers' names in the lines.
function cuesOf(sessions, named) {
  let offsetMs = 0;
  const texts = [];
  for (const session of sessions) {
    let endMs = Math.round(session.heardMs);
    const add = (said) => {
      endMs = Math.max(endMs, said.end_ms);
      const words = said.words?.map(({ word, start_ms, end_ms }) => ({ word, start_ms: offsetMs + start_ms, end_ms: offsetMs + end_ms }));
      texts.push({ ...said, text: oneLine(said.text), start_ms: offsetMs + said.start_ms, end_ms: offsetMs + said.end_ms, words });
    };
    for (const { said } of session.sentences) add({ ...said, name: nameOf(session, said.speaker) });
    for (const { text, startMs } of session.unconfirmed) {
      add({ text: `${NOT_CONFIRMED} ${text}`, start_ms: startMs, end_ms: Math.max(startMs, Math.round(session.heardMs)), name: "" });
    }
    offsetMs += endMs;
  }
  return cutCues(texts, named);
}

function fileClock(ms, point) {
  const two = (n) => String(Math.floor(n)).padStart(2, "0");
  return `${two(ms / 3_600_000)}:${two(ms / 60_000 % 60)}:${two(ms / 1000 % 60)}${point}${String(ms % 1000).padStart(3, "0")}`;
}

// SubRip has no escapes: what parsers take for a time becomes an arrow.
function toSrt(sessions) {
  return cuesOf(sessions, true).map(({ startMs, endMs, name, lines }, i) => {
    const text = ((name && `${name}: `) + lines.join("\n")).replaceAll("-->", "→");
    return `${i + 1}\n${fileClock(startMs, ",")} --> ${fileClock(endMs, ",")}\n${text}\n`;
  }).join("\n");
}

function toVtt(sessions) {
  const escape = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const blocks = cuesOf(sessions, false).map(({ startMs, endMs, name, lines }) => {
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
