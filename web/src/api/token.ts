/** The server's token, if it needs one. Kept for this tab, or on this computer if the visitor says so. */

const KEY = "stoker.token";

type Listener = () => void;
const listeners = new Set<Listener>();
let needed = false;

function stored(): string | null {
  try {
    return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

let token: string | null = stored();

function changed() {
  for (const listener of listeners) listener();
}

export const getToken = () => token;

/** Whether the server refused us: the token dialog is open while this is true. */
export const isTokenNeeded = () => needed;

export function askForToken() {
  if (needed) return;
  needed = true;
  changed();
}

export function setToken(value: string, remember: boolean) {
  token = value;
  needed = false;
  try {
    sessionStorage.setItem(KEY, value);
    if (remember) localStorage.setItem(KEY, value);
  } catch {
    // Storage is off: it lasts as long as the page.
  }
  changed();
}

export function forgetToken() {
  token = null;
  try {
    sessionStorage.removeItem(KEY);
    localStorage.removeItem(KEY);
  } catch {
    // Nothing was stored.
  }
  changed();
}

export function onTokenChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
