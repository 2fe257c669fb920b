"use strict";

// The settings, what is in force of them, and what the server says of itself.

async function askServer() {
  let server;
  try {
    server = parseServer($("server").value);
  } catch (trouble) {
    $("destination").textContent = trouble.message;
    return;
  }
  $("destination").textContent = server.host;
  let health = {};
  try {
    health = await (await fetch(httpAddress(server, "/health"), { cache: "no-store" })).json();
  } catch { /* an older server, another origin, or none: the facts stay unknown */ }
  page.mode = endpointingMode(health.endpointing);
  $("endpointing").replaceChildren(...endpointingWords(page.mode));
  $("engine").textContent = health.engine ? String(health.engine) : "The server does not say.";
  $("commit").hidden = page.mode.mode !== "client";
  if (health.token_needed) $("token-field").hidden = false;
}

// Another server has another token.
function showToken() {
  try {
    $("token").value = recallToken(parseServer($("server").value));
  } catch {
    $("token").value = "";
  }
  $("token-field").hidden = !$("token").value;
}

function onToken() {
  try {
    keepToken(parseServer($("server").value), $("token").value.trim());
  } catch { /* no address, no server to keep it for */ }
  $("token-field").hidden = false;
  onChosen("server");
}

function askForToken() {
  openSettings(true);
  $("token-field").hidden = false;
  $("token").focus();
}

async function listDevices() {
  if (!navigator.mediaDevices?.enumerateDevices) return;
  const devices = await navigator.mediaDevices.enumerateDevices();
  const inputs = devices.filter(({ kind, label, deviceId }) => kind === "audioinput" && label && deviceId !== "default");
  const select = $("device");
  const chosen = select.value;
  const options = inputs.map(({ label, deviceId }) => new Option(label, deviceId));
  select.replaceChildren(new Option("Default microphone", ""), ...options);
  select.value = inputs.some(({ deviceId }) => deviceId === chosen) ? chosen : "";
}

function openSettings(open) {
  const wasOpen = $("settings").classList.contains("open");
  if (open === wasOpen) return;
  if (wasOpen && $("settings").contains(document.activeElement)) $("settings-button").focus();
  $("settings").classList.toggle("open", open);
  $("settings-button").setAttribute("aria-expanded", open);
  if (open) document.scrollingElement.scrollTop = 0;
  onScroll();
}

function showSource() {
  $("mic-fields").hidden = usesFile();
  $("file-fields").hidden = !usesFile();
}

function showServerField() {
  const asked = new URLSearchParams(location.search).has("server");
  $("server").value = serverFromPage();
  $("server-field").hidden = !asked && location.protocol !== "file:";
  if (asked) $("server-hint").textContent = "Taken from this page's address. Your sound goes there.";
}

// ---------------------------------------------------------------- what the server says of itself

function seconds(ms) { return `${(ms / 1000).toLocaleString("en", { maximumFractionDigits: 2 })} s`; }

// "dynamic", "dynamic:5000:2000,inf:300", "fixed:600" or "client", the server's own flag.
function endpointingMode(value) {
  const [, mode, rows] = /^(\w*):?(.*)$/.exec(String(value ?? ""));
  const silences = rows.split(",").filter(Boolean).map((row) => Number(row.split(":").at(-1)));
  return { mode, silences };
}

function endpointingWords({ mode, silences }) {
  if (mode === "client" && isTouched()) return ["When you press Commit."];
  if (mode === "client") return [`When you press Commit, or ${$("key-modifier").textContent} Shift Enter.`];
  if (mode === "fixed") return [silences.length ? `After ${seconds(silences[0])} of silence.` : "After a fixed silence."];
  if (mode !== "dynamic") return [mode || "The server does not say."];
  const [first, last] = [silences[0], silences.at(-1)];
  if (first) return [`After a pause: ${seconds(first)} for a short sentence, down to ${seconds(last)} as it grows.`];
  return [
    "After a pause: 2 s for a short sentence, less as it grows. For a fixed pause start the server with ",
    element("code", "", "--endpointing fixed:600"),
    ".",
  ];
}

// ---------------------------------------------------------------- what is asked of the recognizer

const BETWEEN = /[,，、\r\n]/;
const ARROW = /=>|->|→/;

function listed(text) { return text.split(BETWEEN).map((item) => item.trim()).filter(Boolean); }

// "spoken => written" pairs, separated like hotwords. Throws a Trouble about one that is none.
function readReplacements() {
  const pairs = listed($("replacements").value).map((item) => {
    const sides = item.split(ARROW).map((side) => side.trim());
    if (sides.length === 2 && sides[0]) return sides;
    const what = `“${item}” is no replacement.`;
    throw new Trouble(what, "Write what is to be replaced, =>, and by what.", { about: "replacements", action: OPEN_SETTINGS });
  });
  return Object.fromEntries(pairs);
}

// What START asks for. What is left empty is as the server was started.
function askedSettings() {
  const asked = {};
  const hotwords = listed($("hotwords").value);
  const replacements = readReplacements();
  if ($("language").value) asked.language = $("language").value;
  if (hotwords.length) asked.hotwords = hotwords;
  if (Object.keys(replacements).length) asked.replacements = replacements;
  return asked;
}

function setLanguage() {
  const value = $("language").value;
  $("locked").lang = $("partial").lang = value === "auto" ? "" : value;
  $("language-hint").textContent = "";
  if (page.session && value) page.session.send(`LANGUAGE:${value}`);
  else if (page.session) $("language-hint").textContent = "From the next start on.";
  onChosen("language");
}

function setHotwords() {
  $("hotwords-hint").textContent = HOTWORDS_HINT;
  if (page.session) page.session.send(`HOTWORDS:${listed($("hotwords").value).join(",")}`);
  onChosen("hotwords");
}

function setReplacements() {
  let replacements;
  try {
    replacements = readReplacements();
  } catch (trouble) {
    $("replacements-hint").textContent = `${trouble.message} ${trouble.todo}`;
    return;
  }
  $("replacements-hint").textContent = REPLACEMENTS_HINT;
  const pairs = Object.entries(replacements).map((sides) => sides.join("=>"));
  if (page.session) page.session.send(`POSTPROCESS_HOTWORDS:${pairs.join(",")}`);
  onChosen("replacements");
}

const HOTWORDS_HINT = $("hotwords-hint").textContent;
const REPLACEMENTS_HINT = $("replacements-hint").textContent;

// Every value in force, from `started` and `settings`.
function showSettings({ language, hotwords, replacements }) {
  transcript.current.language = language;
  $("language-hint").textContent = `In force: ${languageName(language ?? "auto")}.`;
  if (hotwords.length || $("hotwords").value.trim()) {
    $("hotwords-hint").textContent = `${hotwords.length || "No"} hotword${hotwords.length === 1 ? "" : "s"} in force.`;
  }
  const count = Object.keys(replacements).length;
  if (count || $("replacements").value.trim()) {
    $("replacements-hint").textContent = `${count || "No"} replacement${count === 1 ? "" : "s"} in force.`;
  }
}

function languageName(value) {
  const option = [...$("language").options].find((candidate) => candidate.value === value);
  return option ? option.textContent : String(value);
}

// Words' times are asked for wherever they can be had; what was not asked for by hand is not missed.
function onWarning({ code, message }) {
  if (code === "words") return;
  if (code === "hotwords") $("hotwords-hint").textContent += ` ${ended(capitalized(message))}`;
  else notices.show(`warning: ${message}`, `The server says: ${message}`);
}

// Show the field that a trouble is about.
function askFor(about) {
  openSettings(true);
  if (about === "replacements") $("more").open = true;
  $(about).focus();
}

// ---------------------------------------------------------------- what is kept for the next time

const REMEMBERED = ["language", "hotwords", "replacements", "with-times"];

function remember() {
  try {
    const values = REMEMBERED.map((id) => [id, $(id).type === "checkbox" ? $(id).checked : $(id).value]);
    localStorage.setItem("realtime_server", JSON.stringify(Object.fromEntries(values)));
  } catch { /* private windows have no storage */ }
}

function recall() {
  let values = {};
  try {
    values = JSON.parse(localStorage.getItem("realtime_server")) ?? {};
  } catch { /* nothing kept, or nothing readable */ }
  if (typeof values.language === "string") $("language").value = values.language;
  if ($("language").selectedIndex < 0) $("language").value = "";
  for (const id of ["hotwords", "replacements"]) if (typeof values[id] === "string") $(id).value = values[id];
  $("more").open = $("replacements").value !== "";
  if (typeof values["with-times"] === "boolean") $("with-times").checked = values["with-times"];
}
