"use strict";

// What is pressed, dropped, scrolled and typed; the last of the scripts, which begins.

function pressMain() {
  if (page.state === "idle") start();
  else if (page.state === "live") finish();
  else abandon();
}

function commit() {
  if (page.state === "live") page.session.send("COMMIT");
}

function onKey(event) {
  if (event.key === "Escape") openSettings(false);
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  if (event.repeat) return;
  if (!event.shiftKey) pressMain();
  else if (!$("commit").hidden) commit();
}

function onDrop(event) {
  event.preventDefault();
  document.body.classList.remove("dragging");
  if (page.state !== "idle" || !event.dataTransfer.files.length) return;
  $("file").files = event.dataTransfer.files;
  $("source-file").checked = true;
  showSource();
  onChosen("source");
}

function onDrag(event) {
  event.preventDefault();
  document.body.classList.toggle("dragging", page.state === "idle" && event.type === "dragover");
}

function onDockSize() {
  document.documentElement.style.setProperty("--notices", `${$("notices").offsetHeight}px`);
  if (page.following) scrollToEnd();
}

// Only a reader scrolls up. Away from the end without that, more text has come since.
function onScroll() {
  const { scrollTop } = document.scrollingElement;
  if (isAtBottom()) page.following = true;
  else if (scrollTop < page.scrollTop) page.following = false;
  page.scrollTop = scrollTop;
  if (page.following) $("latest").hidden = true;
}

$("start").addEventListener("click", pressMain);
$("commit").addEventListener("click", commit);
$("copy").addEventListener("click", copy);
$("clear").addEventListener("click", clear);
$("overlay-copy").addEventListener("click", copyOverlay);
new Menu($("download"), $("download-menu"), download);
new Popup($("overlay"), $("overlay-panel"), { onOpen: showOverlay });
new RenameDialog($("rename"), transcript, () => { page.unsaved = true; });
$("latest").addEventListener("click", scrollToEnd);
$("settings-button").addEventListener("click", () => openSettings(!$("settings").classList.contains("open")));
for (const id of ["source-mic", "source-file"]) $(id).addEventListener("change", showSource);
for (const id of ["source-mic", "source-file", "device", "file"]) $(id).addEventListener("change", () => onChosen("source"));
for (const id of REMEMBERED) $(id).addEventListener("change", remember);
$("token").addEventListener("change", onToken);
window.addEventListener("hashchange", takeTokenFromAddress);
$("server").addEventListener("change", () => {
  onChosen("server");
  showToken();
  askServer();
});
$("language").addEventListener("change", setLanguage);
$("hotwords").addEventListener("change", setHotwords);
$("replacements").addEventListener("change", setReplacements);
document.addEventListener("keydown", onKey);
document.addEventListener("drop", onDrop);
document.addEventListener("dragover", onDrag);
document.addEventListener("dragleave", onDrag);
document.addEventListener("scroll", onScroll, { passive: true });
document.addEventListener("visibilitychange", () => {
  if (document.hidden || !(page.source instanceof Microphone)) return;
  page.source.wake();
  keepAwake();
});
const dockObserver = new ResizeObserver(onDockSize);
dockObserver.observe($("notices"));
dockObserver.observe(document.querySelector(".dock"));
navigator.mediaDevices?.addEventListener?.("devicechange", listDevices);
window.addEventListener("pagehide", () => page.session?.stop());
window.addEventListener("beforeunload", (event) => {
  const running = page.state === "live" || page.state === "stopping";
  if (running || (page.unsaved && !transcript.isEmpty)) event.preventDefault();
});

if (/Mac|iPhone|iPad/.test(navigator.platform)) $("key-modifier").textContent = "⌘";
recall();
showServerField();
showToken();
takeTokenFromAddress();
showSource();
setLanguage();
setState("idle", "Ready");
askServer();
listDevices();
