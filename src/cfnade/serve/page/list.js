// The recommendations: bars and reasons; for the opened one its effects and similar items.

import * as api from "./api.js";
import { hideTip, withTip } from "./tip.js";
import { called, effectText, element, fullBar, icon, outward, percent, picture, shown, signed, valueText } from "./words.js";

const MOVE_MS = 180;
const N_SIMILAR = 8;

export class RecommendationList {
  constructor(at, { onAdd, onDislike, onPin, onBoost, onError }) {
    this.at = at;
    this.list = at("list");
    this.onAdd = onAdd;
    this.onDislike = onDislike;
    this.onPin = onPin;
    this.onBoost = onBoost;
    this.onError = onError;
    this.nSimilar = N_SIMILAR; // or what the service gives at most
    this.open = null; // id of the item whose details are shown
    this.evidence = null;
    this.dials = null;
  }

  wait(isWaiting) {
    this.list.classList.toggle("waiting", isWaiting);
  }

  // `scale` is what `scaleOf` gives; `others` says where items stand in the list beside this one.
  draw(recommendations, scale, { evidence, dials, others = new Map(), otherName = "" }) {
    hideTip();
    this.evidence = evidence;
    this.dials = dials;
    const before = this.places();
    const focused = this.list.contains(document.activeElement) && document.activeElement.closest("li")?.dataset.id;
    this.list.replaceChildren(
      ...recommendations.map((entry, place) => {
        const there = others.get(String(entry.item));
        return this.row(entry, place, scale, there && `${otherName}: ${there}`);
      }),
    );
    if (focused) this.find(focused)?.querySelector(".row").focus({ preventScroll: true });
    this.at("nothing").hidden = recommendations.length > 0;
    this.move(before);
    const opened = this.open !== null && this.find(this.open);
    if (opened) this.fill(opened);
    else this.open = null;
  }

  row(entry, place, scale, elsewhere) {
    const id = String(entry.item);
    const bar = element("i");
    bar.style.width = `${Math.min(100, 100 * scale.width(entry))}%`;
    const head = element("button", {
      type: "button", class: "row", "aria-expanded": "false",
      on: { click: () => this.toggle(id) },
      children: [
        this.rank(id, place),
        element("span", { class: "title", children: [
          ...picture(entry),
          element("span", { class: "name", text: entry.name }),
          ...(elsewhere ? [element("span", { class: "also", text: elsewhere, title: "Its place in the other list" })] : []),
        ] }),
        element("span", { class: "value", text: scale.text(entry), title: scale.title(entry) }),
      ],
    });
    const top = element("div", { class: "top-row", children: [head, ...outward(entry)] });
    const children = [top, element("div", { class: "bar", "aria-hidden": "true", children: [bar] })];
    // An entry can raise the score and yet lower the probability: it makes the history longer.
    const reasons = (entry.because ?? []).filter((reason) => shown(reason) > 0);
    if (reasons.length) {
      children.push(element("div", {
        class: "because",
        children: [
          element("span", { text: "because of" }),
          ...reasons.map((reason) => reasonChip(reason, entry)),
        ],
      }));
    }
    return element("li", { "data-id": id, children });
  }

  rank(id, place) {
    if (!this.dials.isPinned(id)) return element("span", { class: "rank", text: place + 1 });
    const label = element("span", { class: "unseen", text: `${place + 1}, pinned` });
    return element("span", { class: "rank pinned", title: "Pinned", children: [icon("pin"), label] });
  }

  find(id) {
    return [...this.list.children].find((row) => row.dataset.id === id);
  }

  places() {
    return new Map([...this.list.children].map((row) => [row.dataset.id, row.getBoundingClientRect().top]));
  }

  // Rows glide from where they were, so that one sees what rose and what fell.
  move(before) {
    if (!before.size || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    for (const row of this.list.children) {
      const was = before.get(row.dataset.id);
      const by = was === undefined ? 0 : was - row.getBoundingClientRect().top;
      const from = was === undefined ? { opacity: 0.2 } : { transform: `translateY(${by}px)` };
      if (was === undefined || by) {
        row.animate([from, was === undefined ? { opacity: 1 } : { transform: "none" }], {
          duration: MOVE_MS, easing: "ease-out",
        });
      }
    }
  }

  // Lights the chips of one entry of the history.
  point(id) {
    for (const chip of this.list.querySelectorAll(".chip[data-reason]")) {
      chip.classList.toggle("lit", chip.dataset.reason === id);
    }
  }

  toggle(id) {
    const isClosing = this.open === id;
    const old = this.open !== null && this.find(this.open);
    if (old) {
      old.querySelector(".detail")?.remove();
      old.querySelector(".row").setAttribute("aria-expanded", "false");
    }
    this.open = isClosing ? null : id;
    if (!isClosing) this.fill(this.find(id));
  }

  async fill(row) {
    const id = row.dataset.id;
    row.querySelector(".row").setAttribute("aria-expanded", "true");
    const detail = element("div", { class: "detail", role: "group", "aria-label": "Why, and what is like it" });
    row.append(detail);
    const name = row.querySelector(".name").textContent;
    const known = [...Object.keys(this.evidence.history), ...this.evidence.disliked];
    try {
      const [explained, alike] = await Promise.all([
        api.explain(this.evidence, id), api.similar(id, this.nSimilar, known),
      ]);
      if (!row.isConnected) return;
      detail.append(
        effectsPart(explained),
        this.similarPart(alike),
        element("div", {
          class: "whole",
          children: [
            element("button", { type: "button", text: "They had it", "aria-label": `They had ${name}`,
              on: { click: () => this.leave(() => this.onAdd({ item: explained.item, name })) } }),
            element("button", { type: "button", class: "quiet", text: "Not for them", "aria-label": `${name} is not for them`,
              on: { click: () => this.leave(() => this.onDislike({ item: explained.item, name })) } }),
            this.pinButton(id, name),
            this.boostButton(id, name),
          ],
        }),
      );
    } catch (error) {
      this.onError(error);
    }
  }

  pinButton(id, name) {
    const isPinned = this.dials.isPinned(id);
    return element("button", {
      type: "button", class: "quiet", text: isPinned ? "Unpin" : "Pin on top",
      "aria-label": isPinned ? `Unpin ${name}` : `Pin ${name} on top`,
      disabled: !isPinned && this.dials.pins.length >= this.list.children.length,
      on: { click: () => this.leave(() => this.onPin(id)) },
    });
  }

  boostButton(id, name) {
    const isBoosted = this.dials.isBoosted(id);
    return element("button", {
      type: "button", class: "quiet", text: isBoosted ? "Remove boost" : "Boost",
      "aria-label": isBoosted ? `Remove the boost of ${name}` : `Boost ${name}`,
      disabled: !isBoosted && this.dials.areBoostsFull,
      on: { click: () => this.leave(() => this.onBoost(id, name)) },
    });
  }

  // Does what makes the pressed button go, and leaves the focus at the list.
  leave(act) {
    document.getElementById("next").focus({ preventScroll: true });
    act();
  }

  similarPart(alike) {
    const chips = alike.similar.map((item) =>
      element("li", {
        children: [withTip(
          element("button", {
            type: "button", class: "chip similar", text: item.name, "data-item": item.item,
            on: { click: () => { hideTip(); this.leave(() => this.onAdd(item)); } },
          }),
          () => [`${percent(item.similarity)} % alike`, "Adds it to the history."],
        )],
      }));
    const list = element("ul", { class: "chips", children: chips });
    return element("div", { children: [element("h3", { text: "Goes to the same people" }), list] });
  }
}

// What the numbers and bars of some lists mean: the same in all of them, whatever is in a history.
// A calibrated model shows probabilities alone; an item of the history has none. Another model shows
// scores. They have no zero, so their bars start at the lowest of all items.
export function scaleOf(answers, isCalibrated, hasDislikes) {
  const entries = answers.flatMap((answer) => answer.recommendations);
  const title = () => null;
  if (!isCalibrated) {
    const ends = answers.flatMap(({ spread }) => [spread.low, spread.high]).filter((end) => end !== null);
    const low = Math.min(...ends);
    const range = Math.max(...ends) - low || 1;
    return {
      width: (entry) => (entry.score - low) / range,
      text: (entry) => valueText(entry), title,
      words: "score: this model has no calibrated probabilities",
    };
  }
  const chances = entries.map((entry) => entry.probability).filter((chance) => chance != null);
  const full = fullBar(Math.max(0, ...chances));
  const words = [`probability, a full bar is ${Math.round(full * 1000) / 10} %`];
  if (chances.length < entries.length) words.push("items of the history have none");
  if (hasDislikes) words.push("dislikes included");
  return {
    width: (entry) => (entry.probability ?? 0) / full,
    text: (entry) => (entry.probability == null ? "repeat" : valueText(entry)),
    title: (entry) => (entry.probability == null ? "An item of the history has no probability" : null),
    words: words.join("; "),
  };
}

function reasonChip(reason, entry) {
  const chip = element("button", {
    type: "button", class: "chip", text: reason.name, "data-reason": String(reason.item),
  });
  return withTip(chip, () => {
    const without = shown(entry) - shown(reason);
    const unit = called(entry) === "probability" ? " points" : "";
    return [
      effectText(reason) + unit,
      `The ${called(entry)} of ${entry.name} is ${valueText(entry)} with ${reason.name}, ${valueText(entry, without)} without.`,
    ];
  });
}

function effectsPart(explained) {
  const most = Math.max(...explained.effects.map((effect) => Math.abs(shown(effect))), 1e-9);
  const rows = explained.effects.map((effect) => {
    const isAgainst = shown(effect) < 0;
    const bar = element("i", { class: isAgainst ? "against" : "" });
    const width = (50 * Math.abs(shown(effect))) / most;
    bar.style.width = `${width}%`;
    bar.style.left = `${isAgainst ? 50 - width : 50}%`;
    return element("li", {
      children: [
        element("span", { class: "name", text: effect.liked ? effect.name : `not ${effect.name}`, title: effect.name }),
        element("span", { class: "two-sided", "aria-hidden": "true", children: [bar] }),
        element("span", { class: isAgainst ? "by against" : "by", text: effectText(effect) }),
      ],
    });
  });
  const list = rows.length
    ? element("ul", { class: "effects", children: rows })
    : element("p", { class: "muted", text: "The history is empty: this is what most people come to." });
  const children = explained.in_history ? [element("p", { class: "muted", text: aboutRepeat(explained.repeat) })] : [];
  const title = called(explained) === "probability" ? "Effect of each entry, in points" : "Effect of each entry on the score";
  return element("div", { children: [element("h3", { text: title }), ...children, list] });
}

// What the score of an item of the history is made of.
function aboutRepeat(repeat) {
  if (!repeat) return "In the history already: this model does not score repeats, so the score means nothing.";
  const count = Number(repeat.count.toFixed(2));
  return `In the history already, so this is the score of a repeat: ${signed(repeat.from_count)} for a count of ${count}, `
    + `${signed(repeat.from_item)} for the item, by how often people come back to it or go on to the event to predict, `
    + `higher than for ${percent(repeat.above)} % of the items. `
    + "Repeats have no probability.";
}
