"use strict";

// Where the server is, what the session is called there, and which token opens it.

function serverFromPage() {
  const asked = new URLSearchParams(location.search).get("server");
  if (asked) return asked;
  if (location.protocol === "file:") return "ws://localhost:10095/";
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/`;
}

// The WebSocket address in `text`, which may lack its scheme or be a http one.
function parseServer(text) {
  const trimmed = text.trim();
  let url;
  try {
    url = new URL(/^[a-z]+:\/\//i.test(trimmed) ? trimmed : `ws://${trimmed}`);
  } catch {
    throw new Trouble(`“${trimmed}” is not a server address.`, "Write it like ws://host:10095/.", ABOUT_SERVER);
  }
  const schemes = { "http:": "ws:", "https:": "wss:", "ws:": "ws:", "wss:": "wss:" };
  if (!schemes[url.protocol]) {
    throw new Trouble(`A server address begins with ws:// or wss://, not ${url.protocol}//.`, "", ABOUT_SERVER);
  }
  url.href = url.href.replace(url.protocol, schemes[url.protocol]);
  url.hash = "";
  if (location.protocol === "https:" && url.protocol === "ws:" && !/^(localhost|127\.|\[::1\])/.test(url.host)) {
    const what = "A page loaded over https cannot use a server without encryption.";
    throw new Trouble(what, "Use a wss:// address.", ABOUT_SERVER);
  }
  return url;
}

function httpAddress(server, path) {
  const url = new URL(path, server);
  url.protocol = server.protocol === "wss:" ? "https:" : "http:";
  url.search = server.search;
  return url;
}

// ---------------------------------------------------------------- token
// It comes in the fragment of the page's address, which browsers send to nobody, or is typed. It is kept for this tab
// and for one server: a link to this page that names another server does not get it.

function tokenKey(server) { return `realtime_server token for ${server.protocol}//${server.host}`; }

function keepToken(server, token) {
  try {
    if (token) sessionStorage.setItem(tokenKey(server), token);
    else sessionStorage.removeItem(tokenKey(server));
  } catch { /* it lasts as long as the page, then */ }
}

function recallToken(server) {
  try {
    return sessionStorage.getItem(tokenKey(server)) ?? "";
  } catch {
    return "";
  }
}

// Takes the token out of the page's address, which people copy and show.
function takeTokenFromAddress() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given === null) return;
  history.replaceState(history.state, "", location.pathname + location.search);
  $("token").value = given.replaceAll(" ", "+");     // a plus sign that nobody encoded
  onToken();
}

// ---------------------------------------------------------------- the session's name
// Whoever knows it may look on. It is the one in the page's address, or else one that cannot be guessed; that is kept
// for this tab, so that an overlay finds the next session too.

const SESSION_NAME = /^[A-Za-z0-9_-]{1,64}$/;

function sessionName() {
  const asked = new URLSearchParams(location.search).get("session");
  if (asked !== null) {
    if (SESSION_NAME.test(asked)) return asked;
    throw new Trouble(`“${asked}” in this page's address cannot be a session's name.`, "It has 1 to 64 of the letters a-z and A-Z, digits, - and _.");
  }
  const key = "realtime_server session";
  try {
    const kept = sessionStorage.getItem(key) ?? randomName();
    sessionStorage.setItem(key, kept);
    sessionName.made = kept;
  } catch { /* it lasts as long as the page, then */ }
  return sessionName.made ??= randomName();
}

function randomName() {
  const letters = "abcdefghijkmnpqrstuvwxyz23456789";          // 32, so that none is likelier
  return Array.from(crypto.getRandomValues(new Uint8Array(20)), (byte) => letters[byte % letters.length]).join("");
}

// The address as it is connected to; nothing else has the token. The server's own address may name the session.
function connectionAddress(server) {
  const url = new URL(server);
  const token = $("token").value.trim();
  if (!url.searchParams.has("session")) url.searchParams.set("session", sessionName());
  if (token) url.searchParams.set("token", token);
  return url;
}

// ---------------------------------------------------------------- those who look on

function overlayAddress(server) {
  const url = httpAddress(server, "/overlay");
  url.search = new URLSearchParams({ session: connectionAddress(server).searchParams.get("session") });
  return url;
}

// A token that only lets people read along in this session, and ends. The page's own token never leaves it.
async function mintViewToken(server) {
  const wish = { rights: ["view"], ttl_s: 43_200, session: overlayAddress(server).searchParams.get("session") };
  const headers = { Authorization: `Bearer ${$("token").value.trim()}` };
  const byHand = `Whoever runs the server can make one for the session ${wish.session}. Put it behind the address, as #token=TOKEN.`;
  if (server.hostname !== location.hostname) {
    throw new Trouble("People who look on need a token, and this page can ask only its own server for one.", byHand);
  }
  let response;
  try {
    if (server.host === location.host) {
      const asked = new URLSearchParams({ ...wish, rights: "view" });
      response = await fetch(`/tokens?${asked}`, { headers, cache: "no-store" });
    } else {      // the page came from the HTTP port, which takes a body
      const body = JSON.stringify(wish);
      response = await fetch("/tokens", { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body });
    }
  } catch {
    throw new Trouble("The server did not answer when asked for a token for people who look on.", "Try again in a moment.");
  }
  if (response.ok) return response.json();
  const told = await response.json().catch(() => ({}));
  const why = told.error?.message ?? told.error ?? `HTTP status ${response.status}`;
  throw new Trouble(`The server makes no token for people who look on. It says: “${why}”.`, byHand);
}
