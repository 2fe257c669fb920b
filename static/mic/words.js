"use strict";

// The times of words, beside the word that the pointer is on, that was touched, or that the arrow keys went to.

// Where each timed word stands in a text: {from, to, start_ms, end_ms}, in order. Words that a replacement has taken
// out of the text are left out.
function placeWords(text, words) {
  const placed = [];
  const lower = text.toLowerCase();
  const same = lower.length === text.length;       // a few letters change their length
  let at = 0;
  for (const { word, start_ms, end_ms } of words ?? []) {
    const wanted = word.trim();
    let from = text.indexOf(wanted, at);
    if (from < 0 && same) from = lower.indexOf(wanted.toLowerCase(), at);
    if (!wanted || from < 0) continue;
    placed.push({ from, to: from + wanted.length, start_ms, end_ms });
    at = from + wanted.length;
  }
  return placed;
}

function preciseClock(ms) { return `${clock(ms)}.${String(Math.floor(ms % 1000 / 10)).padStart(2, "0")}`; }

class WordTimes {
  constructor(transcript, popup, spoken) {
    this.transcript = transcript;
    this.popup = popup;            // for eyes
    this.spoken = spoken;          // for screen readers, which hear what the keys go to
    this.at = null;                // {row, index} of the word that is shown
    this.keyed = false;            // whether the keys came here; after a click they scroll, as everywhere
    const { locked } = transcript;
    locked.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") this.showAt(event); });
    locked.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") this.hide(); });
    locked.addEventListener("click", (event) => this.showAt(event));
    locked.addEventListener("keydown", (event) => this.onKey(event));
    locked.addEventListener("focus", () => {
      this.keyed = locked.matches(":focus-visible");
      if (this.keyed) this.goTo(this.firstOfLast());
    });
    locked.addEventListener("blur", () => this.hide());
    document.addEventListener("scroll", () => { if (this.moved()) this.hide(); }, { passive: true });
    document.addEventListener("pointerdown", ({ target }) => { if (!locked.contains(target)) this.hide(); });
  }

  wordsOf(row) { return row.words ??= placeWords(row.said.text, row.said.words); }

  range({ row, index }) {
    const { from, to } = this.wordsOf(row)[index];
    const range = document.createRange();
    range.setStart(row.stable, from);
    range.setEnd(row.stable, to);
    return range;
  }

  showAt({ clientX, clientY }) {
    const found = this.find(clientX, clientY);
    if (found) this.show(found);
    else this.hide();
  }

  find(x, y) {
    const caret = document.caretPositionFromPoint?.(x, y);
    const older = caret === undefined ? document.caretRangeFromPoint?.(x, y) : null;
    const [node, offset] = caret ? [caret.offsetNode, caret.offset] : [older?.startContainer, older?.startOffset];
    const row = this.transcript.rows.get(node?.parentElement?.closest(".text"));
    if (!row || node !== row.stable) return null;
    // The caret stands at the nearer side of a letter, which may be outside the word.
    const index = this.wordsOf(row).findIndex(({ from, to }) => from <= offset && offset <= to && this.holds({ from, to }, row, x, y));
    return index < 0 ? null : { row, index };
  }

  holds({ from, to }, row, x, y) {
    const range = document.createRange();
    range.setStart(row.stable, from);
    range.setEnd(row.stable, to);
    return [...range.getClientRects()].some((box) => box.left <= x && x <= box.right && box.top <= y && y <= box.bottom);
  }

  show(at) {
    const { row, index } = at;
    if (this.at?.row === row && this.at.index === index && !this.moved()) return;
    const { start_ms, end_ms } = this.wordsOf(row)[index];
    const range = this.range(at);
    const box = range.getClientRects()[0];
    this.at = at;
    this.top = box.top;
    this.popup.textContent = `${preciseClock(start_ms)} – ${preciseClock(end_ms)}`;
    this.popup.hidden = false;
    const { offsetWidth, offsetHeight } = this.popup;
    const left = Math.min(Math.max(8, (box.left + box.right - offsetWidth) / 2), document.documentElement.clientWidth - offsetWidth - 8);
    this.popup.style.left = `${left}px`;
    this.popup.style.top = `${box.top > offsetHeight + 64 ? box.top - offsetHeight - 4 : box.bottom + 4}px`;
    window.CSS?.highlights?.set("word", new Highlight(range));
  }

  // Whether the word is no longer where the popup points to.
  moved() { return this.at !== null && Math.abs(this.range(this.at).getClientRects()[0]?.top - this.top) > 1; }

  hide() {
    if (!this.at) return;
    this.at = null;
    this.popup.hidden = true;
    window.CSS?.highlights?.delete("word");
  }

  // ---- the keys

  get timed() {
    return this.transcript.sessions.flatMap(({ sentences }) => sentences).filter((row) => this.wordsOf(row).length);
  }

  firstOfLast() {
    const row = this.timed.at(-1);
    return row ? { row, index: 0 } : null;
  }

  goTo(at) {
    if (!at) return;
    at.row.textNode.scrollIntoView({ block: "nearest" });
    this.show(at);
    const { from, to } = this.wordsOf(at.row)[at.index];
    this.spoken.textContent = `${at.row.said.text.slice(from, to)}, ${this.popup.textContent}`;
  }

  onKey(event) {
    if (event.target !== this.transcript.locked || !this.keyed || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") this.hide();
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!step || !this.timed.length) return;
    event.preventDefault();
    this.goTo(this.at ? this.next(this.at, step) : this.firstOfLast());
  }

  next({ row, index }, [rows, words]) {
    const timed = this.timed;
    const place = timed.indexOf(row);
    if (rows) return timed[place + rows] ? { row: timed[place + rows], index: 0 } : { row, index };
    if (this.wordsOf(row)[index + words]) return { row, index: index + words };
    const other = timed[place + words];
    if (!other) return { row, index };
    return { row: other, index: words > 0 ? 0 : this.wordsOf(other).length - 1 };
  }
}
