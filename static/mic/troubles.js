"use strict";

// Words for what went wrong.

const WAIT = "Wait a moment, then try again.";

const CLOSE_WORDS = {
  1000: ["The server ended the session."],
  1001: ["The server went away.", "Wait until it is back, then start again."],
  1003: ["The server did not accept what this page sent.", "Page and server may differ in version: reload the page."],
  1006: ["The connection broke off.", "Check the network and that the server runs, then start again."],
  1008: ["The server ended the session: it reached a limit, or is not allowed here."],
  1009: ["A message was too big for the server.", "Shorten the list of hotwords, then press Start."],
  1011: ["The server had an internal error.", "Its log has the cause."],
  1012: ["The server is shutting down or restarting.", "Wait until it is back, then start again."],
  1013: ["The server has too much to do.", "Wait a moment, then start again."],
};
const BARE_REASONS = ["limit", "internal", "internal error", "the server stops"];     // no more than the code says
const ENDS_BY_ERROR = [1008, 1011];         // closed after an error message that tells why; the rest was not heard
const SAME_EACH_TIME = [1003, 1009];

// `error` is what the server said last, if that was why it closes; `fromFile`: a new start would send the same again.
function closeTrouble({ code, reason, error, fromFile }) {
  const helps = !SAME_EACH_TIME.includes(code) && !(code === 1008 && fromFile);
  const action = helps ? START_AGAIN : null;
  if (error && ENDS_BY_ERROR.includes(code)) {
    return new Trouble(capitalized(error), "The text until then is kept.", { action });
  }
  const [what, todo] = CLOSE_WORDS[code] ?? [`The connection was closed with code ${code}.`];
  const said = reason && !BARE_REASONS.includes(reason) ? ` It says: “${reason}”.` : "";
  return new Trouble(what + said, todo, { action });
}

// START was refused, and nothing has begun. `field` is what it is about.
const FIELD_WORDS = { language: "language", hotwords: "hotwords", replacements: "replacements" };

function startTrouble({ message, field }) {
  const name = FIELD_WORDS[field];
  const what = name ? `The server does not accept the ${name}. It says: “${message}”.` : `The server does not begin. It says: “${message}”.`;
  return new Trouble(what, name ? `Change the ${name} in the settings, then start again.` : "", {
    about: name ? field : "", action: name ? OPEN_SETTINGS : TRY_AGAIN,
  });
}

function protocolTrouble(server) {
  const what = `The server at ${server.host} does not speak protocol 2, which this page needs.`;
  return new Trouble(what, "It is older than this page, or another product: update it, or use a client of protocol 1.", ABOUT_SERVER);
}

// A browser hides why a handshake failed; plain HTTP to the same port tells, if it is this page's own server.
// With a token, even an empty one, /ready tells whether this page would be let in.
async function refusalTrouble(server) {
  const address = httpAddress(server, "/ready");
  address.searchParams.set("token", $("token").value.trim());
  const again = { about: "server", action: TRY_AGAIN };
  let response;
  try {
    response = await fetch(address, { cache: "no-store" });
  } catch {
    const answers = await fetch(address, { cache: "no-store", mode: "no-cors" }).then(() => true, () => false);
    return answers
      ? new Trouble(`The server at ${server.host} refused the connection.`, `It may be full. ${WAIT}`, again)
      : new Trouble(`No server answers at ${server.host}.`, "Check the address and that the server runs.", again);
  }
  switch (response.status) {
    case 503: {
      const { reason } = await response.json().catch(() => ({}));
      const why = reason ? `. It says: “${reason}”.` : ": it is full or stopping.";
      return new Trouble(`The server takes no further session now${why}`, WAIT, again);
    }
    case 401:
      $("token-field").hidden = false;
      return $("token").value.trim()
        ? new Trouble(`The server does not accept the token${await said(response)}`, "Enter another one.", { about: "server", action: ENTER_TOKEN })
        : new Trouble("The server wants a token.", "Whoever runs it gives them out.", { about: "server", action: ENTER_TOKEN });
    case 403:
      return new Trouble(`The server does not allow this connection${await said(response)}`, "Ask whoever runs it for access.", ABOUT_SERVER);
    case 429:
      return new Trouble(`The server has had too much from here${await said(response)}`, "Wait a minute, then try again.", again);
    default:
      return new Trouble("The server refused the connection.", WAIT, again);
  }
}

// The end of a sentence: what a refusal says of itself.
async function said(response) {
  const { error } = await response.json().catch(() => ({}));
  return error ? `. It says: “${error}”.` : ".";
}

const MICROPHONE_WORDS = {
  NotAllowedError: [
    "The browser does not let this page use the microphone.",
    "Allow it at the left of the address bar and in the system's privacy settings, then press Start.",
  ],
  NotFoundError: ["No microphone was found.", "Connect one, or choose a file."],
  OverconstrainedError: ["The chosen microphone is no longer there.", "Choose another input."],
  NotReadableError: [
    "The microphone gives no sound to the browser.",
    "Another program may hold it. Close that, then press Start.",
  ],
};
MICROPHONE_WORDS.AbortError = MICROPHONE_WORDS.NotReadableError;

function microphoneTrouble(error) {
  const unknown = [`The microphone could not be opened: ${error.message || error.name}.`];
  const [what, todo] = MICROPHONE_WORDS[error.name] ?? unknown;
  return new Trouble(what, todo, ABOUT_SOURCE);
}

const INSECURE = new Trouble(
  "Browsers open the microphone only for a page on localhost or loaded over https.",
  "Use one of those addresses, or choose a file: that works here.",
  ABOUT_SOURCE,
);

function fileTrouble(what, todo = "") {
  return new Trouble(what, todo, { about: "source", action: CHOOSE_FILE });
}
