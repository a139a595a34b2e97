// Filters by category: one choice for each column of the items table that has few values.

import { element } from "./words.js";

const ALL = "";

export class Filters {
  constructor(chosen = {}) {
    this.chosen = chosen; // value by column
  }

  get isEmpty() {
    return !Object.keys(this.chosen).length;
  }

  // As the service takes it: null for all items.
  asked() {
    return this.isEmpty ? null : this.chosen;
  }

  // The part of a link: f=COLUMN*VALUE for each choice.
  toLink() {
    const parts = new URLSearchParams();
    for (const [column, value] of Object.entries(this.chosen)) parts.append("f", `${column}*${value}`);
    return parts.toString();
  }

  // `known` are the values that can be chosen, by column; others are dropped.
  static fromLink(text, known) {
    const parts = new URLSearchParams(text).getAll("f");
    const pairs = Object.entries(known).flatMap(([column, values]) =>
      values.filter((value) => parts.includes(`${column}*${value}`)).slice(0, 1).map((value) => [column, value]));
    return new Filters(Object.fromEntries(pairs));
  }
}

// One choice for each column: a filter, or a limit.
export class ColumnControls {
  // `label` names the control of a column, `none` the choice that changes nothing.
  constructor({ kind, label, none, onChange }) {
    Object.assign(this, { kind, label, none, onChange });
    this.selects = new Map();
  }

  // Shows the controls beside the dials; `known` are the values that can be chosen, by column.
  offer(known) {
    for (const select of this.selects.values()) select.parentElement.remove();
    this.selects = new Map(Object.entries(known).map(([column, values], place) => {
      const options = [ALL, ...values].map((value) => element("option", { value, text: value || this.none }));
      const select = element("select", {
        id: `${this.kind}-${place}`, children: options,
        on: { change: () => this.onChange(column, select.value || null) },
      });
      const label = element("label", { for: select.id, text: this.label(column) });
      document.getElementById("filters").append(element("div", { class: "dial", children: [label, select] }));
      return [column, select];
    }));
  }

  // `chosen` is a Map from columns to values.
  draw(chosen) {
    for (const [column, select] of this.selects) select.value = chosen.get(column) ?? ALL;
  }
}
