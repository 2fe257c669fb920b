"use strict";

// The page: what its buttons do, and what comes of it.

const notices = new Notices($("notices"));
const strip = new Strip($("meter"), $("strip"));
const transcript = new Transcript(
  $("locked"),
  $("partial"),
  () => onTranscriptGrowth(),
);

const words = new WordTimes(transcript, $("word"), $("word-spoken"));

const page = {
  state: "idle",             // idle -> starting -> live -> stopping -> idle; any may fall back to idle
  attempt: 0,                // counts starts, so that a cancelled one is recognised after each wait
  source: null,
  session: null,
  server: null,
  address: null,             // of the server, with the session's name and the token
  asked: {},                 // the settings of START
  silence: null,             // the timer of a server that does not answer START
  trouble: null,             // what the page shows to have gone wrong
  mode: {},                  // the server's endpointing
  unsaved: false,
  zeroFrames: 0,
  following: true,           // the reader is at the end
  scrollTop: 0,              // when it changed last
};

const SILENT_MS = 5000;          // after which a server has not answered START is told

const BUTTON = { idle: "Start", starting: "Cancel", live: "Stop", stopping: "Stop waiting" };

function setState(state, words) {
  page.state = state;
  document.body.dataset.state = state;
  $("start").textContent = BUTTON[state];
  $("source-group").disabled = state !== "idle";
  $("commit").hidden = page.mode.mode !== "client";
  $("commit").disabled = state !== "live";
  $("clear").disabled = state !== "idle" || transcript.isEmpty;
  say(words);
}

function say(words) {
  $("status").textContent = words;
  document.title = `${page.state === "idle" ? "Live transcript" : words} · ${NAME}`;
}

const DOES = {
  start: () => start(),
  chooseFile: () => $("file").click(),
  enterToken: () => askForToken(),
  openSettings: ({ about }) => askFor(about),
};

function showTrouble(trouble) {
  page.trouble = trouble;
  document.body.dataset.trouble = "";
  const action = trouble.action && { label: trouble.action.label, run: () => DOES[trouble.action.does](trouble) };
  notices.show("trouble", trouble.message, { todo: trouble.todo, bad: true, action });
}

function forgetTrouble() {
  page.trouble = null;
  delete document.body.dataset.trouble;
  notices.drop("trouble");
}

// Another source, server or setting was chosen: words about the earlier one are out of date.
function onChosen(what) {
  if (page.state !== "idle" || page.trouble?.about !== what) return;
  forgetTrouble();
  say("Ready");
}

function usesFile() { return $("source-file").checked; }

async function openSource() {
  if (!usesFile()) return Microphone.open($("device").value);
  return FileSource.open($("file").files[0], $("pace-fast").checked);
}

async function start() {
  if (page.state !== "idle") return;
  const attempt = ++page.attempt;
  forgetTrouble();
  notices.dropAll();
  openSettings(false);
  setState("starting", usesFile() ? "Reading the file…" : "Opening the microphone…");
  try {
    page.server = parseServer($("server").value);
    page.address = connectionAddress(page.server);
    page.asked = askedSettings();
    const source = await openSource();
    if (attempt === page.attempt) connect(source);
    else source.close();
  } catch (error) {
    if (attempt !== page.attempt) return;
    release();
    setState("idle", "Not started");
    showTrouble(error instanceof Trouble ? error : new Trouble(`The page failed: ${error.message}`));
  }
}

function connect(source) {
  setState("starting", "Connecting…");
  page.source = source;
  page.zeroFrames = 0;
  strip.reset();
  transcript.begin();
  $("empty").hidden = true;
  page.following = true;
  scrollToEnd();
  const session = new Session(page.address, page.asked, {
    opened: () => onOpened(session),
    started: (settings) => onStarted(settings),
    settings: showSettings,
    text: (message) => onText(session, message),
    accounted: () => onAccounted(session),
    warning: onWarning,
    error: (text) => notices.show(`server: ${text}`, `The server says: ${text}`, { bad: true }),
    refused: (error) => onRefused(startTrouble(error)),
    foreign: () => onRefused(protocolTrouble(page.server)),
    unreadable: () => notices.show("unreadable", "The server sent a message that this page cannot read.", { bad: true }),
    closed: (code, reason) => onClosed(session, code, reason),
  });
  page.session = session;
  source.start((frame) => onFrame(session, frame), () => onSourceEnd(source), () => session.hasRoom());
  if (source instanceof Microphone) {
    listDevices();
    keepAwake();
  }
}

function onFrame(session, { pcm, rms, peak }) {
  session.sendAudio(pcm);
  transcript.current.heardMs = session.sentMs;
  strip.add(rms);
  const total = page.source instanceof FileSource ? ` / ${clock(page.source.durationMs)}` : "";
  const words = clock(session.sentMs) + total;
  if ($("clock").textContent !== words) $("clock").textContent = words;
  if (page.source instanceof Microphone) watchMicrophone(session, peak);
}

function watchMicrophone(session, peak) {
  page.zeroFrames = peak === 0 ? page.zeroFrames + 1 : 0;
  if (page.zeroFrames === SILENCE_FRAMES) {
    const todo = "It may be muted, on the device or in the system.";
    notices.show("zeros", "The microphone sends no sound at all.", { todo });
  } else if (page.zeroFrames === 0 && notices.has("zeros")) notices.drop("zeros");
  const waiting = session.socket.bufferedAmount;
  if (waiting > SLOW_NETWORK_BYTES && !notices.has("network")) {
    notices.show("network", "The network is slower than speech.", { todo: "Nothing is lost; the text comes later." });
  } else if (waiting === 0 && notices.has("network")) notices.drop("network");
}

function onSourceEnd(source) {
  if (page.source !== source || page.state === "stopping") return;
  if (source instanceof Microphone) {
    notices.show("unplugged", "The microphone was disconnected.", { todo: "What was said until then is kept." });
  }
  if (page.state === "live") finish();
  else abandon();
}

function onOpened(session) {
  page.silence = setTimeout(() => {
    if (page.session !== session || session.started) return;
    const todo = "If it stays so, it may speak another protocol than this page: press Cancel.";
    notices.show("silent", `The server at ${page.server.host} has not answered yet.`, { todo });
  }, SILENT_MS);
}

function onStarted(settings) {
  notices.drop("silent");
  transcript.current.id = page.session.id;
  showSettings(settings);
  if (page.state === "starting") setState("live", usesFile() ? "Sending the file" : "Listening");
}

// Nothing has begun: the server did not take START.
function onRefused(trouble) {
  release();
  setState("idle", "Not started");
  showTrouble(trouble);
  showCounts();
}

function onText(session, message) {
  transcript.receive(message);
  // The end of the only text that moves is as far as things are; an earlier one would lie behind it.
  if (message.type === "partial" && transcript.current.moving.size === 1) session.account(message.end_ms);
}

function onAccounted(session) {
  strip.account(session.accountedMs);
  if (page.state !== "live") return;
  const behind = Math.max(0, session.sentMs - session.accountedMs);
  const fast = page.source instanceof FileSource && page.source.fast;
  $("lag").textContent = fast ? `${clock(session.accountedMs)} read` : `${(behind / 1000).toFixed(1)} s behind`;
}

async function finish() {
  if (page.state !== "live") return;
  const { session, source } = page;
  setState("stopping", "Waiting for the final…");
  $("lag").textContent = "";
  const since = performance.now();
  page.waitTimer = setInterval(() => { $("waited").textContent = clock(performance.now() - since); }, 1000);
  await source.finish();
  strip.off();
  session.stop();
}

function onClosed(session, code, reason) {
  if (page.session !== session) return;
  const fromFile = page.source instanceof FileSource;
  const finished = session.complete && !ENDS_BY_ERROR.includes(code);
  release();
  transcript.keepUnconfirmed();
  if (finished) {
    setState("idle", "Finished");
    if (transcript.heardNothing && !session.mayLackText) sayNothingHeard(fromFile);
  } else if (session.opened) {
    setState("idle", "Disconnected");
    if (ENDS_BY_ERROR.includes(code)) notices.drop(`server: ${session.lastError}`);     // its words come here
    showTrouble(closeTrouble({ code, reason, error: session.lastError, fromFile }));
  } else {
    setState("idle", "Not connected");
    explainRefusal();
  }
  showCounts();
  askServer();
}

function sayNothingHeard(fromFile) {
  const hints = [];
  if (!transcript.isEmpty) hints.push("The text on the page is from before.");
  if (!fromFile && !notices.has("zeros")) hints.push("If you spoke, check the input and its level.");
  notices.show("nothing", "No speech was heard.", { todo: hints.join(" ") });
}

async function explainRefusal() {
  const attempt = page.attempt;
  const trouble = await refusalTrouble(page.address);
  if (attempt === page.attempt) showTrouble(trouble);
}

// Cancel before the session runs, or stop waiting for its end.
function abandon() {
  page.attempt++;
  const ran = page.session?.opened;
  page.session?.abandon();
  release();
  transcript.keepUnconfirmed();
  setState("idle", ran ? "Stopped early" : "Ready");
  showCounts();
}

function release() {
  page.source?.close();
  page.source = null;
  page.session = null;
  clearInterval(page.waitTimer);
  clearTimeout(page.silence);
  notices.drop("silent");
  $("waited").textContent = "";
  $("lag").textContent = "";
  strip.off();
  page.wakeLock?.release().catch(() => {});
  page.wakeLock = null;
}

async function keepAwake() {
  try {
    const lock = await navigator.wakeLock?.request("screen");
    if (page.source) page.wakeLock = lock;
    else lock?.release();
  } catch { /* a low battery may refuse it; the session runs on */ }
}
