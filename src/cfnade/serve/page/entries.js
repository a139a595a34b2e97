// The history as a list that can be changed: counts, thumbs down, removal.

import { element, iconButton, picture } from "./words.js";

const LONG = 40; // characters of a name from which it has a line of its own

export class Entries {
  constructor(list, { onChange, onPoint }) {
    this.list = list;
    this.onChange = onChange;
    this.onPoint = onPoint;
  }

  draw(history) {
    this.list.replaceChildren(
      ...[...history.entries].map(([id, entry]) => this.row(history, id, entry)),
    );
  }

  row(history, id, entry) {
    // After a redraw the focus goes to the button that stands where the old one stood.
    const change = (act, isStep = false) => (event) => {
      const label = event.currentTarget.getAttribute("aria-label");
      act();
      this.onChange(isStep);
      this.list.querySelector(`[aria-label="${CSS.escape(label)}"]`)?.focus();
    };
    const amount = element("input", {
      type: "number", min: 0, max: 1e6, step: "any", value: entry.count, "aria-label": `Count of ${entry.name}`,
      on: {
        input: (event) => {
          const count = event.target.valueAsNumber;
          if (!(count >= 0)) return;
          entry.count = count;
          this.onChange(true, true);
        },
      },
    });
    const count = element("span", {
      class: "count",
      children: [
        iconButton("minus", `One less of ${entry.name}`, change(() => {
          entry.count = Math.max(1, entry.count - 1);
        }, true)),
        amount,
        iconButton("plus", `One more of ${entry.name}`, change(() => (entry.count += 1), true)),
      ],
    });
    const down = iconButton("down", `${entry.name} is disliked`, change(() => {
      entry.disliked = !entry.disliked;
    }), { "aria-pressed": String(entry.disliked) });
    const remove = iconButton("cross", `Remove ${entry.name}`, () => {
      const place = [...history.entries.keys()].indexOf(id);
      history.remove(id);
      this.onChange();
      const next = this.list.children[place] ?? this.list.lastElementChild;
      (next?.querySelector(":scope > button:last-child") ?? document.getElementById("next")).focus({ preventScroll: true });
    });
    return element("li", {
      class: `${entry.disliked ? "disliked" : ""} ${entry.name.length > LONG ? "long" : ""}`, "data-id": id,
      children: [element("span", { class: "name", children: [...picture(entry), entry.name] }), count, down, remove],
      on: { pointerenter: () => this.onPoint(id), pointerleave: () => this.onPoint(null) },
    });
  }
}
