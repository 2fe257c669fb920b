"use strict";

// The transcript on the page: following its end, copying, files, clearing, and those who look on.

function isAtBottom() {
  const { scrollHeight, scrollTop, clientHeight } = document.scrollingElement;
  return scrollHeight - scrollTop - clientHeight < NEAR_BOTTOM_PX;
}

function scrollToEnd() {
  document.scrollingElement.scrollTop = document.scrollingElement.scrollHeight;
}

// Many sentences may come in one message: scroll once, at the next frame.
function onTranscriptGrowth() {
  page.unsaved = true;
  if (page.growing) return;
  page.growing = true;
  requestAnimationFrame(() => {
    page.growing = false;
    showCounts();
    if (page.following) scrollToEnd();
    else $("latest").hidden = false;
  });
}

function showCounts() {
  const empty = transcript.isEmpty;
  for (const id of ["copy", "download"]) {
    $(id).disabled = empty;
    $(id).title = empty ? `There is nothing to ${id} before the first sentence is locked` : "";
  }
  $("locked").tabIndex = empty ? -1 : 0;
  $("clear").disabled = empty || page.state !== "idle";
  $("empty").hidden = !empty || page.state !== "idle";
}

function copiedText() { return toText(transcript.sessions, $("with-times").checked); }

async function copy() {
  if (await copyToClipboard(copiedText(), $("copy"))) saved("copy", "Copied");
  else notices.show("copy", "The browser did not let the page copy.", { todo: "Use Download instead." });
}

async function copyToClipboard(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text, button);
  }
}

// Without a secure context there is no clipboard object.
function copyBySelection(text, button) {
  const area = element("textarea", "out-of-sight", text);
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  button.focus({ preventScroll: true });
  return done;
}

// form: one of FILES.
function download(form) {
  const now = new Date();
  const parts = [now.getFullYear(), now.getMonth() + 1, now.getDate(), now.getHours() * 100 + now.getMinutes()];
  const stamp = parts.map((part, i) => String(part).padStart(i === 3 ? 4 : 2, "0")).join("-");
  const { type, write } = FILES[form];
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([write(transcript.sessions, $("with-times").checked)], { type: `${type};charset=utf-8` }));
  link.download = `transcript-${stamp}.${form}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  saved("download", "Downloaded");
}

function saved(id, words) {
  page.unsaved = page.state !== "idle";
  flash(id, words);
}

// Let a button say for a moment what it has done.
function flash(id, words) {
  const button = $(id);
  button.dataset.label ||= button.textContent;
  button.textContent = words;
  clearTimeout(Number(button.dataset.timer));
  button.dataset.timer = setTimeout(() => { button.textContent = button.dataset.label; }, 2000);
}

function clear() {
  const taken = transcript.clear();
  const unsaved = page.unsaved;
  page.unsaved = false;
  notices.show("cleared", "The transcript was cleared.", {
    action: { label: "Bring it back", run: () => { transcript.restore(taken); page.unsaved = unsaved; showCounts(); } },
  });
  $("clock").textContent = "0:00";
  strip.reset();
  showCounts();
}

// ---------------------------------------------------------------- those who look on

// The address as it may be given away: never with the page's own token.
function showOverlay() {
  try {
    page.viewing = { address: overlayAddress(parseServer($("server").value)), minted: false };
    $("overlay-address").value = page.viewing.address;
    $("overlay-copy").disabled = false;
    $("overlay-hint").textContent = $("token").value.trim() ? "Copy asks the server for a token for it, which only lets people read along." : "";
  } catch (trouble) {
    $("overlay-address").value = "";
    $("overlay-copy").disabled = true;
    $("overlay-hint").textContent = `${trouble.message} ${trouble.todo}`;
  }
}

async function copyOverlay() {
  const viewing = page.viewing;
  if ($("token").value.trim() && !viewing.minted) {
    try {
      const { token, expires_at } = await mintViewToken(parseServer($("server").value));
      viewing.address.hash = new URLSearchParams({ token });
      viewing.minted = true;
      $("overlay-address").value = viewing.address;
      const until = new Date(expires_at * 1000).toLocaleString([], { weekday: "short", hour: "2-digit", minute: "2-digit" });
      $("overlay-hint").textContent = `Its token lets people in until ${until}.`;
    } catch (trouble) {
      $("overlay-hint").textContent = `${trouble.message} ${trouble.todo ?? ""}`;
      return;
    }
  }
  if (await copyToClipboard(viewing.address.href, $("overlay-copy"))) flash("overlay-copy", "Copied");
  else $("overlay-hint").textContent = "The browser did not let the page copy: select the address and copy it yourself.";
}
