// The address of the page holds all that it shows, after the #: people, dials and filters.
// It is only ever read as text: ids and numbers, which the service checks.

import { Dials } from "./dials.js";
import { Filters } from "./filters.js";
import { History } from "./history.js";

const MOST = 8000; // signs of a link; longer ones get lost on the way

export const isTooLong = (text) => text.length > MOST;

export function toLink(histories, dials, filters) {
  const [first, second] = histories;
  const parts = [first.toLink("h", "d"), second && `two=1&${second.toLink("h2", "d2")}`, dials.toLink(), filters.toLink()];
  return parts.filter(Boolean).map((part) => part.replace(/&$/, "")).join("&");
}

// What a link says; `model` is the answer of /v1/model, `n` the length of a list.
export function fromLink(text, model, n) {
  const parts = new URLSearchParams(text);
  const histories = [History.fromLink(text, "h", "d")];
  if (parts.get("two") === "1") histories.push(History.fromLink(text, "h2", "d2"));
  const version = parts.get("m");
  const filters = Filters.fromLink(text, model.filters);
  const dials = Dials.fromLink(text, model, n);
  const nByCategory = [...dials.boosts.keys()].filter((key) => key.startsWith("c")).length + dials.limits.size;
  return {
    histories,
    dials,
    filters,
    nLostFilters: parts.getAll("f").length - Object.keys(filters.chosen).length,
    nLostDials: parts.getAll("c").length + parts.getAll("k").length - nByCategory,
    isOtherModel: version !== null && version !== model.version,
  };
}
