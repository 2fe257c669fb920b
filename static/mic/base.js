"use strict";

const SAMPLE_RATE = 16000;
const SAMPLES_PER_MS = SAMPLE_RATE / 1000;
const FRAME_SAMPLES = 960;               // 60 ms, the server's own frame
const FRAME_MS = FRAME_SAMPLES / SAMPLES_PER_MS;
const MAX_SOCKET_BYTES = 512 * 1024;     // of a file, waiting in the browser's socket: 16 s of audio
const MAX_UNDECODED_MS = 60_000;         // of a file, sent but not accounted for; servers bound it
const MAX_STEP_SAMPLES = 6 * SAMPLE_RATE; // of a file, before the page may do something else
const SLOW_NETWORK_BYTES = 64_000;       // of the microphone, waiting in the socket: 2 s
const SILENCE_FRAMES = 50;               // 3 s of digital zeros: a muted microphone
const FLOOR_DB = -60;
const NEAR_BOTTOM_PX = 96;
const VOICES = 8;
const MAX_NOTICES = 30;
const NAME = "realtime-server";
const NOT_RECOGNIZED = "(not recognized)";     // a locked sentence without words: its decoding failed
const NOT_CONFIRMED = "(not confirmed)";       // it moved when the connection ended

const $ = (id) => document.getElementById(id);

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function clock(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const two = (n) => String(n).padStart(2, "0");
  const hours = Math.floor(s / 3600);
  const minutes = Math.floor(s / 60) % 60;
  return hours ? `${hours}:${two(minutes)}:${two(s % 60)}` : `${minutes}:${two(s % 60)}`;
}

function decibels(amplitude) {
  return amplitude > 0 ? Math.max(FLOOR_DB, 20 * Math.log10(amplitude)) : FLOOR_DB;
}

function isTouched() { return matchMedia("(pointer: coarse)").matches; }

// `text` with a stop at its end.
function ended(text) { return /[.!?…。！？]["'”’»」』)\]]*$/.test(text) ? text : `${text}.`; }

function capitalized(text) { return text.charAt(0).toUpperCase() + text.slice(1); }

// Buttons that help; page.js has what they do.
const START_AGAIN = { label: "Start again", does: "start" };
const TRY_AGAIN = { label: "Try again", does: "start" };
const CHOOSE_FILE = { label: "Choose a file", does: "chooseFile" };
const ENTER_TOKEN = { label: "Enter a token", does: "enterToken" };
const OPEN_SETTINGS = { label: "Open the settings", does: "openSettings" };

// A failure with words for the person in front of the page. `about` is the choice that caused it, "source" or
// "server": once that changes, the words are out of date. `action` is a button that helps.
class Trouble extends Error {
  constructor(what, todo = "", { about = "", action = null } = {}) {
    super(what);
    Object.assign(this, { todo, about, action });
  }
}

const ABOUT_SERVER = { about: "server" };
const ABOUT_SOURCE = { about: "source" };

// Change a text node from the first character on that differs; the rest of it is not touched.
function setEnd(node, text) {
  const old = node.data;
  if (old === text) return;
  let same = 0;
  while (same < old.length && same < text.length && old[same] === text[same]) same += 1;
  node.replaceData(same, old.length - same, text.slice(same));
}
