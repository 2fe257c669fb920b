"use strict";

class Notices {
  constructor(root) {
    this.root = root;
    this.shown = new Map();
  }

  // One notice per key; the same words again raise its count. The oldest of very many goes.
  show(key, words, { todo = "", bad = false, action = null } = {}) {
    const what = ended(words);
    const earlier = this.shown.get(key);
    const count = earlier && earlier.what === what ? earlier.count + 1 : 1;
    this.drop(key);
    const row = element("div", bad ? "notice bad" : "notice");
    const text = element("p");
    text.append(element("strong", "", what), todo ? ` ${todo}` : "", count > 1 ? ` (${count} times)` : "");
    row.append(text);
    if (action) row.append(this.button(action.label, "outlined", () => { this.drop(key); action.run(); }));
    const dismiss = this.button("", "dismiss", () => this.drop(key));
    dismiss.setAttribute("aria-label", `Dismiss: ${what}`);
    row.append(dismiss);
    this.root.append(row);
    this.root.scrollTop = this.root.scrollHeight;
    this.shown.set(key, { row, what, count });
    if (this.shown.size > MAX_NOTICES) this.drop(this.shown.keys().next().value);
  }

  button(label, className, run) {
    const button = element("button", className, label);
    button.type = "button";
    button.addEventListener("click", run);
    return button;
  }

  drop(key) {
    this.shown.get(key)?.row.remove();
    this.shown.delete(key);
  }

  dropAll() { for (const key of [...this.shown.keys()]) this.drop(key); }

  has(key) { return this.shown.has(key); }
}
