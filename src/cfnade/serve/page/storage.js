// What the browser keeps for the page; where site data is blocked, until the page is left.

const own = new Map();

function attempt(act) {
  try {
    return act();
  } catch {
    return null;
  }
}

// `kind` is "localStorage" or "sessionStorage": even to name one may be refused.
export const recall = (kind, key) => own.get(key) ?? attempt(() => window[kind].getItem(key));

export function keep(kind, key, value) {
  own.set(key, value);
  attempt(() => window[kind].setItem(key, value));
}
