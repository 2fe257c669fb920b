"use strict";

// What moves on the page, and what is locked. A text's nodes stay where they are from its first partial on; only what
// differs in them is replaced.

// A segment while it moves, then a sentence; `said` is the message of the sentence.
class Row {
  constructor(startMs, stable = "", unstable = "") {
    this.said = null;
    this.label = null;
    this.startMs = startMs;
    this.node = element("li", "sentence moving");
    this.timeNode = element("span", "time", clock(startMs));
    this.textNode = element("p", "text");
    this.textNode.dir = "auto";
    const part = (name) => this.textNode.appendChild(element("span", name)).appendChild(document.createTextNode(""));
    this.stable = part("stable");
    this.unstable = part("unstable");
    this.node.append(this.timeNode, this.textNode);
    this.say(stable, unstable);
  }

  say(stable, unstable) {
    setEnd(this.stable, stable);
    setEnd(this.unstable, unstable);
  }

  get text() { return this.stable.data + this.unstable.data; }

  lock(sentence) {
    this.said = { ...sentence, text: String(sentence.text ?? "") };
    this.startMs = sentence.start_ms;
    setEnd(this.timeNode.firstChild, clock(sentence.start_ms));
    this.say(this.said.text || NOT_RECOGNIZED, "");
    if (!this.said.text) this.textNode.classList.add("missing");
    if (sentence.language) this.textNode.lang = sentence.language;
    const tag = Row.tagOf(this.said);
    if (tag) this.node.append(element("p", "tag", tag));
  }

  static tagOf({ flags, text }) {
    if (flags?.includes("failed")) return text ? "Not recognized as a whole: these are the last partials" : "";
    if (flags?.includes("recovered")) return "From the partials: the recognizer lost some of it at the end";
    return flags?.includes("truncated") ? "Not complete: the recognizer reached its limit" : "";
  }

  keepUnconfirmed() {
    this.node.className = "sentence unconfirmed";
    this.node.append(element("p", "tag", "Not confirmed: the connection ended first"));
  }
}

class Transcript {
  constructor(locked, moving, onGrow) {
    this.locked = locked;
    this.moving = moving;
    this.onGrow = onGrow;
    this.sessions = [];
    this.rows = new WeakMap();     // of the elements of locked texts
  }

  begin() {
    const began = new Date();
    this.current = {
      began, time: began.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }), id: null, language: null, heardMs: 0,
      divider: null, list: element("ol"), sentences: [], byId: new Map(), names: new Map(), moving: new Map(), unconfirmed: [],
    };
  }

  // A session joins the page with its first text, so that attempts without any leave no trace.
  join(session) {
    if (this.sessions.includes(session)) return;
    this.sessions.push(session);
    this.locked.append(session.list);
    this.headSessions();
  }

  // As soon as there are two, each has a heading.
  headSessions() {
    if (this.sessions.length < 2) return;
    this.sessions.forEach((session, i) => {
      if (session.divider) return;
      session.divider = element("h2", "divider", `Session ${i + 1}, ${session.time}`);
      session.list.before(session.divider);
    });
  }

  receive(message) {
    const session = this.current;
    switch (message.type) {
      case "partial": this.move(session, message); break;
      case "no_sentence": this.forget(session, message.segment); break;
      case "sentence": this.append(session, message); break;
      case "speakers": for (const { id, to } of message.changes) this.revise(session, id, to); break;
      case "final":      // the server's last word: nothing that it has may be missing here
        for (const sentence of message.sentences) {
          if (session.byId.has(sentence.id)) this.revise(session, sentence.id, sentence.speaker);
          else this.append(session, sentence);
        }
        for (const segment of [...session.moving.keys()]) this.forget(session, segment);
    }
  }

  move(session, { segment, start_ms, stable, unstable }) {
    const row = session.moving.get(segment);
    if (row) row.say(stable, unstable);
    else {
      const made = new Row(start_ms, stable, unstable);
      session.moving.set(segment, made);
      this.moving.append(made.node);
    }
    this.onGrow();
  }

  forget(session, segment) {
    session.moving.get(segment)?.node.remove();
    session.moving.delete(segment);
  }

  append(session, sentence) {
    this.join(session);
    const row = session.moving.get(sentence.segment) ?? new Row(sentence.start_ms);
    session.moving.delete(sentence.segment);
    row.lock(sentence);
    session.sentences.push(row);
    session.byId.set(sentence.id, row);
    this.rows.set(row.textNode, row);
    this.showSpeaker(session, session.sentences.length - 1);
    session.list.append(row.node);
    this.onGrow();
  }

  revise(session, id, speaker) {
    const row = session.byId.get(id);
    if (!row || row.said.speaker === speaker) return;
    row.said.speaker = speaker;
    const index = session.sentences.indexOf(row);
    this.showSpeaker(session, index);
    if (index + 1 < session.sentences.length) this.showSpeaker(session, index + 1);
  }

  // A label where the voice changes; the colour on each sentence.
  showSpeaker(session, index) {
    const row = session.sentences[index];
    const { speaker } = row.said;
    const named = speaker !== undefined && speaker !== null;
    row.node.className = named ? `sentence voiced v${Math.abs(speaker) % VOICES}` : "sentence";
    if (!named || speaker === session.sentences[index - 1]?.said.speaker) {
      row.label?.remove();
      row.label = null;
      return;
    }
    if (!row.label) {
      row.label = element("button", "speaker");
      row.label.type = "button";
      row.label.title = "Rename";
      row.node.prepend(row.label);
    }
    row.label.textContent = Transcript.speakerName(session, speaker);
  }

  static speakerName(session, speaker) { return session.names.get(speaker) ?? `Speaker ${Number(speaker) + 1}`; }

  // Whose label a button is.
  speakerOf(label) {
    for (const session of this.sessions) {
      const row = session.sentences.find((each) => each.label === label);
      if (row) return { session, speaker: row.said.speaker };
    }
    return null;
  }

  // Numbers are a session's own: the name counts in this session alone. An empty one takes it back.
  rename({ session, speaker }, name) {
    const line = name.replace(/\s+/g, " ").trim();
    if (line) session.names.set(speaker, line);
    else session.names.delete(speaker);
    for (const row of session.sentences) {
      if (row.label && row.said.speaker === speaker) row.label.textContent = Transcript.speakerName(session, speaker);
    }
  }

  // The connection is gone: what moved last stays, marked.
  keepUnconfirmed() {
    const session = this.current;
    for (const [segment, row] of session?.moving ?? []) {
      this.join(session);
      row.keepUnconfirmed();
      session.list.append(row.node);
      session.unconfirmed.push({ text: row.text, startMs: row.startMs });
      session.moving.delete(segment);
    }
  }

  get isEmpty() { return this.sessions.length === 0; }

  get heardNothing() { return !this.sessions.includes(this.current); }

  clear() {
    const taken = { sessions: this.sessions, nodes: [...this.locked.childNodes] };
    this.sessions = [];
    this.current = null;
    this.locked.replaceChildren();
    return taken;
  }

  restore({ sessions, nodes }) {
    this.sessions = [...sessions, ...this.sessions];
    this.locked.setAttribute("aria-live", "off");       // nobody wants it all read out again
    this.locked.prepend(...nodes);
    requestAnimationFrame(() => this.locked.setAttribute("aria-live", "polite"));
  }
}
