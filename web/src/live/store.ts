/** The live state for React: at most four renders a second, however much arrives. */

import { INITIAL, isNewer, type LiveEvent, type LiveState, reduce } from "./state";

export const RENDER_MS = 250;

type Listener = (state: LiveState, before: LiveState) => void;

export class LiveStore {
  #state: LiveState = INITIAL;
  #waiting: LiveEvent[] = [];
  #timer: ReturnType<typeof setTimeout> | null = null;
  #renderedAt = Number.NEGATIVE_INFINITY;
  #listeners = new Set<Listener>();
  readonly #now: () => number;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  get state(): LiveState {
    return this.#state;
  }

  emit = (event: LiveEvent): void => {
    this.#waiting.push(event);
    this.#schedule();
  };

  /** Take over what another tab knows, unless this one knows more; what arrived meanwhile is counted in after it. */
  adopt = (state: LiveState): void => {
    const before = this.#state;
    const ahead =
      before.position !== null && (state.position === null || !isNewer(state.position, before.position));
    if (ahead && before.phase === state.phase) return;
    this.#state = ahead
      ? { ...before, phase: state.phase, downSince: state.downSince }
      : { ...state, generation: Math.max(state.generation, before.generation), changed: [] };
    this.#notify(before);
  };

  /** Count in at once what has arrived. */
  flush = (): void => {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    this.#renderedAt = this.#now();
    const before = this.#state;
    const events = this.#waiting;
    this.#waiting = [];
    this.#state = reduce(before, events);
    if (this.#state !== before) this.#notify(before);
  };

  subscribe = (listener: Listener): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  #schedule(): void {
    if (this.#timer !== null) return;
    const wait = Math.max(0, this.#renderedAt + RENDER_MS - this.#now());
    this.#timer = setTimeout(this.flush, wait);
  }

  #notify(before: LiveState): void {
    for (const listener of this.#listeners) listener(this.#state, before);
  }
}
