// One of the people that are looked at: a history with its search, and the list for it.

import { Entries } from "./entries.js";
import { History } from "./history.js";
import { RecommendationList } from "./list.js";
import { Search } from "./search.js";
import { element } from "./words.js";

export class Person {
  // `end` closes the ids of this person's parts: "" for the first, "-2" for the second. `onChange`
  // gets what changed in the history, `toList` moves the focus to the lists.
  constructor(end, { onChange, onPin, onBoost, onError, toList }) {
    this.at = (id) => document.getElementById(id + end);
    this.history = new History();
    this.onChange = onChange;
    this.toList = toList;
    this.list = new RecommendationList(this.at, {
      onAdd: (item) => this.change(() => this.history.add(item)),
      onDislike: (item) => this.change(() => this.history.dislike(item)),
      onPin,
      onBoost,
      onError,
    });
    this.entries = new Entries(this.at("entries"), {
      onChange: (isStep = false, isTyped = false) => onChange({ isStep, isTyped: isTyped && this }),
      onPoint: (id) => this.list.point(id),
    });
    this.search = new Search(this.at, {
      onChoose: (item) => this.change(() => this.history.add(item)),
      onError,
    });
    this.at("clear").addEventListener("click", () => {
      toList();
      this.change(() => (this.history = new History()));
    });
  }

  change(act) {
    act();
    this.onChange();
  }

  // The history as entries, unless it is being typed into.
  draw(isTyped) {
    if (!isTyped) this.entries.draw(this.history);
    this.at("start").hidden = !this.history.isEmpty;
    this.at("clear").hidden = this.history.isEmpty;
  }

  limit(most) {
    this.search.most = Math.min(this.search.most, most);
    this.list.nSimilar = Math.min(this.list.nSimilar, most);
  }

  suggest(items) {
    this.at("popular").replaceChildren(...items.map((item) => element("li", {
      children: [element("button", {
        type: "button", class: "chip", text: item.name,
        on: {
          click: () => {
            this.toList();
            this.change(() => this.history.add(item));
          },
        },
      })],
    })));
  }
}

// A second set of the parts of a person, beside the first.
export function addTwin() {
  for (const id of ["person", "one-list"]) {
    const first = document.getElementById(id);
    const twin = first.cloneNode(true);
    for (const part of [twin, ...twin.querySelectorAll("*")]) {
      for (const name of ["id", "for", "aria-controls", "aria-labelledby"]) {
        if (part.hasAttribute(name)) part.setAttribute(name, `${part.getAttribute(name)}-2`);
      }
    }
    twin.hidden = true;
    first.after(twin);
  }
}
