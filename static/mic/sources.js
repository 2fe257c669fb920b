"use strict";

// Sources of sound.
// A source calls onFrame({pcm, rms, peak}) per frame. finish() resolves when its last frame is out; close() drops it.

class Microphone {
  static async open(deviceId) {
    if (!navigator.mediaDevices?.getUserMedia || !window.isSecureContext) throw INSECURE;
    const audio = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: true };
    if (deviceId) audio.deviceId = { exact: deviceId };
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ audio });
    } catch (error) {
      throw microphoneTrouble(error);
    }
    const microphone = new Microphone(stream);
    try {
      await microphone.prepare();
    } catch (error) {
      microphone.close();
      const what = `This browser cannot process the microphone's sound: ${error.message}.`;
      throw new Trouble(what, "Try a newer one.", ABOUT_SOURCE);
    }
    return microphone;
  }

  constructor(stream) {
    this.stream = stream;
    this.context = new AudioContext();
    this.onEnd = () => {};
    stream.getAudioTracks()[0].addEventListener("ended", () => this.onEnd());
  }

  async prepare() {
    const source = $("capture-worklet").textContent;
    // A page from disk has no origin, and its blobs are foreign to it; only it needs, and may use, a data address.
    const url = location.protocol === "file:"
      ? `data:text/javascript,${encodeURIComponent(source)}`
      : URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    try {
      await this.context.audioWorklet.addModule(url);
    } finally {
      URL.revokeObjectURL(url);
    }
    await this.context.resume();
  }

  start(onFrame, onEnd) {
    this.onEnd = onEnd;
    this.node = new AudioWorkletNode(this.context, "capture");
    this.node.port.onmessage = ({ data }) => (data.done ? this.onDone?.() : onFrame(data));
    this.context.createMediaStreamSource(this.stream).connect(this.node);
    this.node.connect(this.context.destination);     // silent; an unconnected node may not run
  }

  async finish() {
    const done = new Promise((resolve) => { this.onDone = resolve; });
    const tooLong = new Promise((resolve) => setTimeout(resolve, 500));     // a suspended audio thread never answers
    this.node.port.postMessage("finish");
    await Promise.race([done, tooLong]);
    this.close();
  }

  // After a phone call or a change of device the browser may leave the audio thread asleep.
  wake() {
    if (this.context.state !== "running" && this.context.state !== "closed") this.context.resume();
  }

  close() {
    this.onEnd = () => {};
    for (const track of this.stream.getTracks()) track.stop();
    if (this.context.state !== "closed") this.context.close();
  }
}

// Whether `bytes` are no file at all, or a WAV file of no samples: decoders fail on that as on any other kind.
function holdsNoAudio(bytes) {
  const view = new DataView(bytes);
  const tag = (at) => String.fromCharCode(...new Uint8Array(bytes, at, 4));
  if (bytes.byteLength < 12) return bytes.byteLength === 0;
  if (tag(0) !== "RIFF" || tag(8) !== "WAVE") return false;
  let at = 12;
  while (at + 8 <= bytes.byteLength && tag(at) !== "data") {
    const size = view.getUint32(at + 4, true);
    at += 8 + size + size % 2;
  }
  return at + 8 >= bytes.byteLength || view.getUint32(at + 4, true) === 0;
}

class FileSource {
  static async open(file, fast) {
    if (!file) throw fileTrouble("No file is chosen.", isTouched() ? "" : "Choose an audio file, or drop one on the page.");
    const bytes = await FileSource.read(file);
    const empty = fileTrouble(`“${file.name}” holds no audio.`);
    const unreadable = fileTrouble(
      `This browser cannot read “${file.name}” as audio.`, "WAV, MP3, M4A and FLAC usually work.",
    );
    const trouble = holdsNoAudio(bytes) ? empty : unreadable;     // asked first: decoding takes the bytes away
    let decoded;
    try {
      decoded = await new OfflineAudioContext(1, 1, SAMPLE_RATE).decodeAudioData(bytes);
    } catch {
      throw trouble;
    }
    if (!decoded.length) throw empty;
    return new FileSource(decoded, fast);
  }

  static async read(file) {
    try {
      return await file.arrayBuffer();
    } catch {
      throw fileTrouble(`“${file.name}” cannot be read any more.`, "If it was changed or moved, choose it again.");
    }
  }

  constructor(decoded, fast) {
    this.pcm = FileSource.mix(decoded);
    this.fast = fast;
    this.durationMs = this.pcm.length / SAMPLES_PER_MS;
    this.sent = 0;             // samples
    this.heldBack = 0;         // ms of wall time in which the receiver did not keep up
  }

  static mix(decoded) {
    const channels = Array.from({ length: decoded.numberOfChannels }, (_, c) => decoded.getChannelData(c));
    const pcm = new Int16Array(decoded.length);
    for (let i = 0; i < pcm.length; i++) {
      let sum = 0;
      for (const channel of channels) sum += channel[i];
      pcm[i] = Math.max(-32768, Math.min(32767, Math.round(sum / channels.length * 32768)));
    }
    return pcm;
  }

  // `hasRoom` says whether network and server keep up.
  start(onFrame, onEnd, hasRoom) {
    const began = performance.now();
    let last = began;
    const step = () => {
      const now = performance.now();
      if (!hasRoom()) this.heldBack += now - last;
      last = now;
      const pace = this.fast ? Infinity : (now - began - this.heldBack) * SAMPLES_PER_MS;
      const due = Math.min(pace, this.pcm.length, this.sent + MAX_STEP_SAMPLES);
      while (this.sent < due && hasRoom()) this.send(onFrame);
      if (this.sent >= this.pcm.length) onEnd();
      else this.timer = setTimeout(step, this.fast ? 5 : 30);
    };
    step();
  }

  send(onFrame) {
    const pcm = this.pcm.slice(this.sent, this.sent + FRAME_SAMPLES);
    this.sent += pcm.length;
    let energy = 0, peak = 0;
    for (const sample of pcm) {
      energy += sample * sample;
      peak = Math.max(peak, Math.abs(sample));
    }
    onFrame({ pcm, rms: Math.sqrt(energy / pcm.length) / 32768, peak: peak / 32768 });
  }

  async finish() { this.close(); }

  close() { clearTimeout(this.timer); }
}
