// Site data of the page; kept in memory if the browser blocks it.

const own = new Map();

function attempt(act) {
  try {
    return act();
  } catch {
    return null;
  }
}

// `kind` is "localStorage" or "sessionStorage"; even reading the property may throw.
export const recall = (kind, key) => own.get(key) ?? attempt(() => window[kind].getItem(key));

export function keep(kind, key, value) {
  own.set(key, value);
  attempt(() => window[kind].setItem(key, value));
}
