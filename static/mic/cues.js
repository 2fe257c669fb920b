"use strict";

// What subtitles show, and when: the server's rules, realtime_server/offline/cues.py, which says why; a test compares
// the two. Times are in ms, widths in fifths of an ideograph. A text is an array of its characters, whatever they take
// in UTF-16.

const LEAST_MS = 833;          // for which a cue is shown, if the next one can wait
const LONGEST_MS = 7000;
const LATEST_MS = 2000;        // what a cue may wait for the one before it
const PAUSE_MS = 500;          // between two words, a good place to cut
const LINE = 84, LETTER = 2, IDEOGRAPH = 5;
const SLACK = 20;              // characters that may lie between a word and the next, where they differ from the text

// Of East Asian Width, wide or fullwidth. The emoji that are wide are those with a picture of their own, but for flags.
const WIDE = new RegExp("[\\u1100-\\u115f\\u2329\\u232a\\u2e80-\\u303e\\u3041-\\u3247\\u3250-\\u4dbf\\u4e00-\\ua4cf\\ua960-\\ua97f" +
  "\\uac00-\\ud7a3\\uf900-\\ufaff\\ufe10-\\ufe19\\ufe30-\\ufe6f\\uff01-\\uff60\\uffe0-\\uffe6\\u{16fe0}-\\u{1b2ff}\\u{1f200}-\\u{1f2ff}" +
  "\\u{20000}-\\u{3fffd}]|(?![\\u{1f1e6}-\\u{1f1ff}])\\p{Emoji_Presentation}", "u");
const FLAT = /[\p{Mn}\p{Me}\p{Cf}]/u;
const HANGUL = /(?![\u3200-\u321e\u3260-\u327e])\p{Script=Hangul}/u;
const OPENING = /[\p{Ps}\p{Pi}]/u;
const CLOSING = /(?![\p{Ps}\p{Pi}])[\p{P}\p{Lm}\p{Sk}]|[ぁぃぅぇぉっゃゅょゎゕゖァィゥェォッャュョヮヵヶ]/u;
const SENTENCE_END = /[.?!…。？！؟।]["'”’」』）)]*$/;
const CLAUSE_END = /[,;:，、；：،]["'”’」』）)]*$/;
const INVISIBLE = new RegExp("[\\x00-\\x08\\x0e-\\x1b\\x7f-\\x84\\x86-\\x9f\\xad\\u200b\\u200e\\u200f\\u202a-\\u202e\\u2060-\\u206f\\ufeff" +
  "\\ud800-\\udfff]|(?<![\\u0590-\\u18af])[\\u200c\\u200d]|[\\u200c\\u200d](?![\\u0590-\\u18af])", "gu");

function oneLine(text) { return text.replace(INVISIBLE, "").replace(/[\s\x1c-\x1f\x85]+/g, " ").trim(); }

function widthOf(sign) { return FLAT.test(sign) ? 0 : WIDE.test(sign) ? IDEOGRAPH : LETTER; }

function widthOfAll(signs) { return signs.reduce((width, sign) => width + widthOf(sign), 0); }

function isUnspaced(sign) { return WIDE.test(sign) && !HANGUL.test(sign); }

// Whether two characters look like one, or the first has no width of its own.
function areJoined(before, after) { return before === "\u200d" || /\p{M}/u.test(after) || widthOf(after) === 0; }

function mayBreak(before, after) {
  if (before === " " || after === " ") return before === " ";
  if (!(isUnspaced(before) || isUnspaced(after)) || areJoined(before, after)) return false;
  return !OPENING.test(before) && !CLOSING.test(after);
}

// Cues in order, each shown alone: {startMs, endMs, lines, name}. said: {text, start_ms, end_ms, words, name}, whose
// text is in one line; named: leave room for the name in each line.
function cutCues(said, named) {
  const found = said.flatMap((each) => {
    const room = LINE - (named && each.name ? widthOfAll([...`${each.name}: `]) : 0);
    return new Cutter(each, room).cues();
  });
  return arranged(found.sort((one, other) => one.startMs - other.startMs));
}

// ---------------------------------------------------------------- one after the other

function arranged(cues) {
  const starts = [];
  cues.forEach((cue, at) => starts.push(at ? startOf(cues[at - 1], starts[at - 1], cue) : cue.startMs));
  return cues.map((cue, at) => ({
    ...cue, startMs: starts[at], endMs: Math.min(endOf(cue, starts[at]), at + 1 < cues.length ? starts[at + 1] : Infinity),
  }));
}

function endOf(cue, startMs) { return Math.min(Math.max(cue.endMs, startMs + LEAST_MS), startMs + LONGEST_MS); }

// From when to show `cue`, which takes the place of `shown`, seen since `sinceMs`.
function startOf(shown, sinceMs, cue) {
  const untilMs = endOf(shown, sinceMs);
  const [before, after] = [shown, cue].map(({ lines }) => widthOfAll([...lines.join("")]));
  const shareMs = Math.floor((Math.max(untilMs, cue.endMs) - sinceMs) * before / Math.max(1, before + after));
  const fairMs = Math.min(untilMs, sinceMs + Math.max(shareMs, LEAST_MS), cue.startMs + LATEST_MS);
  return Math.max(cue.startMs, fairMs, sinceMs + 1);
}

// ---------------------------------------------------------------- one sentence

// Cuts a sentence into cues whose lines are at most `room` wide. Pieces are what is never broken, each with the space
// that follows it. The lists have a value for each edge of the pieces.
class Cutter {
  constructor(said, room) {
    this.room = room;
    this.name = said.name;
    this.text = [...said.text];
    const spoken = spokenWords(this.text, said.words);
    this.before = [0];                 // width of the text before each character
    for (const sign of this.text) this.before.push(this.before.at(-1) + widthOf(sign));
    this.edges = this.findEdges(spoken);
    const times = [[0, 0], ...characterTimes(this.text.length, said, spoken), [0, 0]];
    const ends = this.edges.map((edge) => this.visible(edge));
    this.left = this.edges.map((edge) => this.before[edge]);   // widths of the text before a piece,
    this.right = ends.map((end) => this.before[end]);          // and up to its end
    this.startMs = this.edges.map((edge) => times[edge + 1][0]);
    this.endMs = ends.map((end) => times[end][1]);
    this.value = ends.map((end) => endValue(this.text.slice(Math.max(0, end - 3), end).join("")));
    this.full = this.fill();
  }

  cues() {
    const cuts = this.cuts();
    return cuts.slice(1).map((last, at) => ({
      startMs: this.startMs[cuts[at]], endMs: this.endMs[last], lines: this.lines(cuts[at], last), name: this.name,
    }));
  }

  // Places in the text at which pieces begin and end.
  findEdges(spoken) {
    const inside = new Set();
    for (const { first, last } of spoken) {
      if (this.before[last] - this.before[first] <= this.room) for (let at = first + 1; at < last; at += 1) inside.add(at);
    }
    const edges = [0];
    for (let at = 1; at <= this.text.length; at += 1) {
      if (at < this.text.length && (inside.has(at) || !mayBreak(this.text[at - 1], this.text[at]))) continue;
      edges.push(...this.splits(edges.at(-1), this.visible(at)), at);
    }
    return edges;
  }

  // Where to break characters [first, last) that are too wide for a line and have no place for it.
  splits(first, last) {
    const found = [];
    while (this.before[last] - this.before[first] > this.room) {
      let furthest = first;
      while (furthest + 1 < this.before.length && this.before[furthest + 1] <= this.before[first] + this.room) furthest += 1;
      let at = furthest;
      while (at > first && areJoined(this.text[at - 1], this.text[at])) at -= 1;
      first = at > first ? at : furthest;
      found.push(first);
    }
    return found;
  }

  // The edge, or the one before the space that precedes it: spaces at line ends are not shown.
  visible(edge) { return edge - (this.text[edge - 1] === " " ? 1 : 0); }

  // Width in one line of the pieces between two edges.
  size(first, last) { return this.right[last] - this.left[first]; }

  // For each edge, at which one the longest line that begins there ends.
  fill() {
    let last = 0;
    return this.edges.map((_, first) => {
      while (last < this.edges.length - 1 && this.size(first, last + 1) <= this.room) last += 1;
      return last;
    });
  }

  fits(first, last) {
    const long = this.endMs[last] - this.startMs[first] > LONGEST_MS;
    return last === first + 1 || (!long && this.full[this.full[first]] >= last);
  }

  // Edges at which cues begin and end: the cheapest ones, by dynamic programming.
  cuts() {
    const costs = [0], origins = [0];
    for (let last = 1; last < this.edges.length; last += 1) {
      let cost = Infinity, origin = 0;
      for (let first = last - 1; first >= 0 && this.fits(first, last); first -= 1) {
        const whole = costs[first] + this.cost(first, last);
        if (whole <= cost) [cost, origin] = [whole, first];
      }
      costs.push(cost);
      origins.push(origin);
    }
    const cuts = [this.edges.length - 1];
    while (cuts.at(-1)) cuts.push(origins[cuts.at(-1)]);
    return cuts.reverse();
  }

  // One for the cue, up to one for its emptiness, a half if it is short; less for a good end.
  cost(first, last) {
    const empty = 1 - this.size(first, last) / (2 * this.room);
    const short = this.endMs[last] - this.startMs[first] < LEAST_MS ? 1 : 0;
    const pause = last < this.edges.length - 1 && this.startMs[last] - this.endMs[last] >= PAUSE_MS ? 1 : 0;
    return 1 + empty * empty + 0.5 * short - Math.max(this.value[last], 0.5 * pause);
  }

  // One line if that is enough, else two of similar width.
  lines(first, last) {
    const cuts = [first, last];
    if (this.full[first] < last) {
      let best = Infinity, middle = null;
      for (let at = first + 1; at <= this.full[first]; at += 1) {
        if (this.full[at] >= last && this.unevenness(first, at, last) < best) {
          best = this.unevenness(first, at, last);
          middle = at;
        }
      }
      cuts.splice(1, 0, middle);
    }
    const edges = cuts.map((cut) => this.edges[cut]);
    return edges.slice(1).map((end, at) => this.text.slice(edges[at], end).join("").trim());
  }

  // How far two lines differ in width, as a share of the room; less for a good end of the first.
  unevenness(first, middle, last) {
    return Math.abs(this.size(first, middle) - this.size(middle, last)) / this.room - this.value[middle];
  }
}

function endValue(end) { return SENTENCE_END.test(end) ? 0.5 : CLAUSE_END.test(end) ? 0.25 : 0; }

// The words that are found in the text, in order, {first, last, startMs, endMs}; those that a replacement changed are not.
function spokenWords(text, words) {
  const letters = [...text.keys()].filter((at) => text[at] !== " ");
  const squeezed = letters.map((at) => text[at]);
  const found = [];
  let at = 0, reach = 0;
  for (const { word, start_ms, end_ms } of words ?? []) {
    const said = [...oneLine(word).replaceAll(" ", "")];
    reach += said.length + SLACK;
    const place = said.length ? indexOf(squeezed, said, at, reach) : -1;
    if (place < 0) continue;
    at = reach = place + said.length;
    found.push({ first: letters[place], last: letters[at - 1] + 1, startMs: start_ms, endMs: end_ms });
  }
  return found;
}

function indexOf(signs, wanted, from, to) {
  for (let at = from; at + wanted.length <= Math.min(to, signs.length); at += 1) {
    if (wanted.every((sign, n) => signs[at + n] === sign)) return at;
  }
  return -1;
}

// When each of `count` characters is said; never falling, within the sentence, from 0.
function characterTimes(count, { start_ms, end_ms }, spoken) {
  let now = Math.max(0, start_ms);
  const lastMs = Math.max(now, end_ms);
  const times = [];
  for (const { first, last, startMs, endMs } of [...spoken, { first: count, last: count, startMs: lastMs, endMs: lastMs }]) {
    const start = Math.min(Math.max(now, startMs), lastMs);
    const end = Math.min(Math.max(start, endMs), lastMs);
    share(times, now, start, first - times.length);
    share(times, start, end, last - first);
    now = end;
  }
  return times;
}

function share(times, startMs, endMs, count) {
  const edge = (at) => startMs + Math.floor((endMs - startMs) * at / Math.max(1, count));
  for (let at = 0; at < count; at += 1) times.push([edge(at), edge(at + 1)]);
}
