/**
 * One connection for all tabs. The tab that holds the lock is the leader: it has the stream and tells the others every
 * message over a channel. When it is closed, the lock goes to another, which resumes where it was itself. A tab that
 * joins asks for what the leader knows, so that it need not wait for the next change. Where there are no locks (plain
 * HTTP on another host than this one), every tab connects for itself.
 */

import { keepConnected } from "./connection";
import type { LiveEvent, LiveState } from "./state";

type Note = { kind: "event"; event: LiveEvent } | { kind: "ask" } | { kind: "tell"; state: LiveState };

export interface ShareOptions {
  /** Everything that has arrived, counted in. */
  state: () => LiveState;
  emit: (event: LiveEvent) => void;
  /** Take over what another tab knows. */
  adopt: (state: LiveState) => void;
  signal: AbortSignal;
}

const NAME = "stoker.live";

export function share({ state, emit, adopt, signal }: ShareOptions): void {
  const position = () => state().position;
  if (!("locks" in navigator) || typeof BroadcastChannel === "undefined") {
    void keepConnected({ position, emit, signal });
    return;
  }
  const channel = new BroadcastChannel(NAME);
  let leading = false;
  channel.onmessage = ({ data }: MessageEvent<Note>) => {
    if (data.kind === "ask") {
      if (leading) channel.postMessage({ kind: "tell", state: state() } satisfies Note);
    } else if (!leading) {
      if (data.kind === "tell") adopt(data.state);
      else emit(data.event);
    }
  };
  channel.postMessage({ kind: "ask" } satisfies Note);
  signal.addEventListener("abort", () => channel.close());
  navigator.locks
    .request(NAME, { signal }, async () => {
      leading = true;
      const tell = (event: LiveEvent) => {
        emit(event);
        if (!signal.aborted) channel.postMessage({ kind: "event", event } satisfies Note);
      };
      await keepConnected({ position, emit: tell, signal });
      leading = false;
    })
    .catch(() => undefined);
}
