"use strict";

// Protocol 2 over one WebSocket. What is sent before the socket opens is kept and sent after START.
class Session {
  constructor(address, settings, handlers) {
    this.handlers = handlers;
    this.waiting = [`START ${JSON.stringify({ protocol: 2, words: true, events: false, ...settings })}`];
    this.id = null;
    this.sentMs = 0;
    this.accountedMs = 0;
    this.opened = false;
    this.started = false;
    this.stopSent = false;
    this.complete = false;         // the final came
    this.mayLackText = false;      // a segment could not be recognised
    this.lastError = "";           // before the server closes with an error, it tells why
    this.socket = new WebSocket(address);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => this.onOpen();
    this.socket.onmessage = ({ data }) => this.onMessage(data);
    this.socket.onclose = ({ code, reason }) => handlers.closed(code, reason);
  }

  onOpen() {
    this.opened = true;
    for (const message of this.waiting) this.socket.send(message);
    this.waiting = [];
    this.handlers.opened();
  }

  onMessage(data) {
    let message;
    try {
      message = JSON.parse(data);
    } catch {
      this.handlers.unreadable();
      return;
    }
    switch (message?.type) {
      case "started":
        this.started = true;
        this.id = message.session;
        this.handlers.started(message.settings);
        break;
      case "settings": this.handlers.settings(message.settings); break;
      case "warning": this.handlers.warning(message); break;
      case "error": this.onError(message); break;
      case "progress": this.account(message.decoded_ms); break;
      case "partial":
      case "no_sentence":
      case "speakers": this.handlers.text(message); break;
      case "sentence":
        this.handlers.text(message);
        this.account(message.end_ms);
        break;
      case "final": this.onFinal(message); break;
      case "stopped": this.onStopped(); break;
      case undefined: this.onForeign(); break;
    }
  }

  // A message of protocol 1, or of something else.
  onForeign() {
    if (this.started) {
      this.handlers.unreadable();
      return;
    }
    this.abandon();
    this.handlers.foreign();
  }

  // All audio until then is in texts, or was silence.
  account(ms) {
    this.accountedMs = Math.max(this.accountedMs, ms);
    this.handlers.accounted();
  }

  onFinal(message) {
    if (this.stopSent) this.complete = true;
    this.handlers.text(message);
    this.account(message.duration_ms);
  }

  onError(error) {
    this.mayLackText ||= error.segment !== null;
    if (error.fatal) this.lastError = error.message;
    if (this.started || error.fatal) {
      this.handlers.error(error.message);
      return;
    }
    this.abandon();
    this.handlers.refused(error);
  }

  onStopped() {
    this.complete = true;
    this.abandon();
    this.handlers.closed(1000, "");
  }

  sendAudio(pcm) {
    this.sentMs += pcm.length / SAMPLES_PER_MS;
    this.send(pcm);
  }

  send(message) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(message);
    else if (!this.opened) this.waiting.push(message);
  }

  stop() {
    if (this.stopSent) return;
    this.stopSent = true;
    this.send("STOP");
  }

  hasRoom() {
    const undecodedMs = this.sentMs - this.accountedMs;
    return this.started && this.socket.bufferedAmount < MAX_SOCKET_BYTES && undecodedMs < MAX_UNDECODED_MS;
  }

  abandon() {
    this.socket.onopen = this.socket.onmessage = this.socket.onclose = null;
    this.socket.close(1000);
  }
}
