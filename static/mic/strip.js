"use strict";

// One bar per frame. What the server has accounted for stands in the accent colour, what is on its way does not:
// the distance between the two is the lag.

class Strip {
  constructor(meter, canvas) {
    this.meter = meter;
    this.canvas = canvas;
    this.levels = new Float32Array(1024);     // a ring, in decibels
    this.frames = 0;
    this.accountedMs = 0;
    this.drawing = false;
    this.spokenAt = 0;
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  reset() {
    this.frames = 0;
    this.accountedMs = 0;
    this.off();
    this.draw();
  }

  off() { this.say(FLOOR_DB, "off"); }

  add(rms) {
    const level = decibels(rms);
    this.levels[this.frames++ % this.levels.length] = level;
    const now = performance.now();
    if (now - this.spokenAt > 250) {
      this.spokenAt = now;
      this.say(Math.round(level), `${Math.round(level)} dB`);
    }
    this.draw();
  }

  say(value, text) {
    this.meter.setAttribute("aria-valuenow", value);
    this.meter.setAttribute("aria-valuetext", text);
  }

  account(ms) {
    this.accountedMs = ms;
    this.draw();
  }

  draw() {
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      this.paint();
    });
  }

  paint() {
    const scale = window.devicePixelRatio || 1;
    const width = this.canvas.clientWidth, height = this.canvas.clientHeight;
    if (this.canvas.width !== Math.round(width * scale)) this.canvas.width = Math.round(width * scale);
    if (this.canvas.height !== Math.round(height * scale)) this.canvas.height = Math.round(height * scale);
    const style = getComputedStyle(document.body);
    const [accounted, pending, idle] = ["--accent", "--edge", "--line"].map((name) => style.getPropertyValue(name));
    const context = this.canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    const pitch = 5, thickness = 3;
    const bars = Math.min(Math.floor(width / pitch), this.levels.length);
    for (let bar = 0; bar < bars; bar++) {
      const frame = this.frames - bars + bar;
      const share = frame < 0 ? 0 : (this.levels[frame % this.levels.length] - FLOOR_DB) / -FLOOR_DB;
      const tall = Math.max(thickness, share ** 1.6 * height);
      context.fillStyle = frame < 0 ? idle : frame * FRAME_MS < this.accountedMs ? accounted : pending;
      context.beginPath();
      context.roundRect(width - (bars - bar) * pitch, (height - tall) / 2, thickness, tall, thickness / 2);
      context.fill();
    }
  }
}
