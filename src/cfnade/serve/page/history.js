// What is known of someone: items with counts, or disliked. It lives in the page's link.

import { numbered } from "./words.js";

export class History {
  constructor() {
    this.entries = new Map(); // id as text -> { item, name, count, disliked }
  }

  get isEmpty() {
    return this.entries.size === 0;
  }

  has(item) {
    return this.entries.has(String(item));
  }

  add({ item, name, image }, count = 1) {
    const known = this.entries.get(String(item));
    if (known) known.count += count;
    else this.entries.set(String(item), { item, name, image, count, disliked: false });
  }

  dislike(item) {
    this.add(item);
    this.entries.get(String(item.item)).disliked = true;
  }

  copy() {
    const copied = new History();
    for (const [id, entry] of this.entries) copied.entries.set(id, { ...entry });
    return copied;
  }

  remove(item) {
    this.entries.delete(String(item));
  }

  // As the service takes it.
  evidence() {
    const history = {};
    const disliked = [];
    for (const [id, entry] of this.entries) {
      if (entry.disliked) disliked.push(id);
      else history[id] = entry.count;
    }
    return { history, disliked };
  }

  get hasDislikes() {
    return [...this.entries.values()].some((entry) => entry.disliked);
  }

  // The part of a link after the #: h=COUNT*ID for what they had, d=ID for what they dislike.
  toLink(had, disliked) {
    const parts = new URLSearchParams();
    for (const [id, entry] of this.entries) {
      if (entry.disliked) parts.append(disliked, id);
      else parts.append(had, `${entry.count}*${id}`);
    }
    return parts.toString();
  }

  static fromLink(text, had, disliked) {
    const history = new History();
    for (const [kind, value] of new URLSearchParams(text)) {
      const [count, item] = numbered(value) ?? [];
      if (kind === disliked) {
        history.entries.set(value, { item: value, name: value, count: 1, disliked: true });
      } else if (kind === had && count >= 0) {
        history.entries.set(item, { item, name: item, count, disliked: false });
      }
    }
    return history;
  }
}
