import { NextList } from "./NextList";

interface PreviewProps {
  /** Undefined while they are not known: nothing is typed yet, or it cannot be. */
  times: readonly number[] | undefined;
  timezone: string;
  /** The expression in words, where there are some. */
  words: string | null;
}

/** When what is typed would tick. */
export function Preview({ times, timezone, words }: PreviewProps) {
  return (
    <section
      aria-label="Preview"
      aria-live="polite"
      className="rounded-md border border-line bg-sunken px-3 py-2 text-xs"
    >
      {times === undefined ? (
        <p className="text-muted">The next runs are shown here as you type.</p>
      ) : times.length === 0 ? (
        <p className="text-warn">This never comes.</p>
      ) : (
        <>
          <p className="text-muted">Next runs{words && `, ${words}`}</p>
          <NextList times={times} timezone={timezone} />
        </>
      )}
    </section>
  );
}
