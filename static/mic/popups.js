"use strict";

// A button that opens and closes a panel below it. Escape, a click elsewhere and moving on by Tab close it.
class Popup {
  constructor(button, panel, { onOpen = () => {} } = {}) {
    Object.assign(this, { button, panel, onOpen });
    button.addEventListener("click", () => this.set(panel.hidden));
    document.addEventListener("pointerdown", ({ target }) => { if (!this.holds(target)) this.set(false); });
    for (const node of [button, panel]) {
      node.addEventListener("focusout", ({ relatedTarget }) => { if (relatedTarget && !this.holds(relatedTarget)) this.set(false); });
      node.addEventListener("keydown", (event) => this.onKey(event));
    }
  }

  holds(node) { return this.panel.contains(node) || this.button.contains(node); }

  set(open) {
    if (open === !this.panel.hidden) return;
    this.panel.hidden = !open;
    this.button.setAttribute("aria-expanded", open);
    if (open) this.onOpen();
  }

  onKey(event) {
    if (event.key !== "Escape" || this.panel.hidden) return;
    event.stopPropagation();
    this.button.focus();
    this.set(false);
  }
}

// A popup that is a list of choices: arrow keys go through them, and choosing one closes it.
class Menu extends Popup {
  constructor(button, panel, choose) {
    super(button, panel, { onOpen: () => this.items[0].focus({ preventScroll: true }) });
    this.items = [...panel.querySelectorAll('[role="menuitem"]')];
    for (const item of this.items) item.addEventListener("click", () => this.choose(item, choose));
  }

  choose(item, choose) {
    this.button.focus({ preventScroll: true });
    this.set(false);
    choose(item.dataset.value);
  }

  onKey(event) {
    super.onKey(event);
    const opens = this.panel.hidden && event.key === "ArrowDown";
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || (this.panel.hidden && !opens)) return;
    event.preventDefault();
    const at = this.items.indexOf(document.activeElement);
    if (opens) this.set(true);
    else this.items.at((at + step) % this.items.length).focus({ preventScroll: true });
  }
}

// Asks for a speaker's name. Whose label was pressed may be another's by the time of the answer: the speaker counts.
class RenameDialog {
  constructor(dialog, transcript, onRenamed) {
    this.dialog = dialog;
    this.whose = null;
    const input = dialog.querySelector("input");
    transcript.locked.addEventListener("click", ({ target }) => {
      const label = target.closest?.(".speaker");
      this.whose = label && transcript.speakerOf(label);
      if (!this.whose) return;
      const { session, speaker } = this.whose;
      dialog.querySelector("label").textContent = `Name of Speaker ${speaker + 1}`;
      input.value = session.names.get(speaker) ?? "";
      input.placeholder = `Speaker ${speaker + 1}`;
      dialog.showModal();
      input.select();
    });
    dialog.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      transcript.rename(this.whose, input.value);
      dialog.close();
      onRenamed();
    });
    dialog.querySelector('button[type="button"]').addEventListener("click", () => dialog.close());
  }
}
