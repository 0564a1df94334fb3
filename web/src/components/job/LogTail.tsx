import { useVirtualizer } from "@tanstack/react-virtual";
import { type CSSProperties, memo, useEffect, useRef, useState } from "react";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Panel } from "@/components/Panel";
import { useShortcuts } from "@/keyboard/shortcuts";
import { cx } from "@/lib/cx";
import { bytes, clock, exact, plural } from "@/lib/format";
import { type LogLine, type Span, spansOf } from "./logLines";
import type { LogsState } from "./useLogs";

const LINE_PX = 20;
/** So near the end counts as being there. */
const NEAR_PX = 30;

interface LogTailProps {
  logs: LogsState;
  final: boolean;
  /** With more than one attempt, each line says whose it is. */
  attempts: number;
  /** Where all of it can be had. */
  command: string;
}

/** What the job wrote, in its colours; follows the end until somebody scrolls back. */
export function LogTail({ logs, final, attempts, command }: LogTailProps) {
  const { lines, dropped } = logs.book;
  const box = useRef<HTMLDivElement>(null);
  const [follow, setFollow] = useState(true);
  const rows = useVirtualizer({
    count: lines.length,
    getScrollElement: () => box.current,
    estimateSize: () => LINE_PX,
    getItemKey: (index) => lines[index]?.number ?? index,
    overscan: 20,
  });
  const toggle = () => setFollow((on) => !on);
  useShortcuts("Log", [{ keys: "f", text: "Follow the log", run: toggle }]);
  const total = rows.getTotalSize();
  // biome-ignore lint/correctness/useExhaustiveDependencies: `total` grows once lines are measured, and the end moves.
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [follow, lines, total]);
  // Only a hand turns it off or on: positions alone also change when lines are measured.
  const onHand = (up: boolean | null) => {
    const element = box.current;
    if (!element || element.scrollHeight <= element.clientHeight) return;
    const left = element.scrollHeight - element.scrollTop - element.clientHeight;
    setFollow(up !== true && left <= NEAR_PX);
  };
  return (
    <Panel
      title="Log"
      flush
      actions={
        <>
          <span className="text-xs text-muted">
            {plural(lines.length, "line")}
            {logs.writtenBytes > 0 && `, ${bytes(logs.writtenBytes)}`}
          </span>
          {lines.length > 0 && (
            <Button
              size="sm"
              icon="down"
              aria-pressed={follow}
              onClick={toggle}
              className={cx(follow && "!text-accent")}
            >
              Follow
            </Button>
          )}
        </>
      }
    >
      {(dropped > 0 || logs.cut) && (
        <p className="px-4 pb-2 text-xs text-muted">
          {dropped > 0
            ? `${plural(dropped, "earlier line")} left out here; all that is kept: `
            : "It wrote more than is kept. What there is: "}
          <code className="font-mono">{command}</code>
        </p>
      )}
      {logs.error !== null && lines.length === 0 ? (
        <div className="px-4 pb-4">
          <ErrorNote error={logs.error} />
        </div>
      ) : lines.length === 0 ? (
        <p className="px-4 pb-4 text-muted">
          {!logs.loaded
            ? "Reading…"
            : final
              ? "It wrote nothing."
              : "Nothing written yet; lines appear here as they come."}
        </p>
      ) : (
        <div
          ref={box}
          role="log"
          aria-label="What the job wrote"
          // biome-ignore lint/a11y/noNoninteractiveTabindex: whoever has no mouse scrolls it with the keyboard.
          tabIndex={0}
          onWheel={(event) => onHand(event.deltaY < 0)}
          onTouchMove={() => onHand(null)}
          onKeyUp={() => onHand(null)}
          className="max-h-[420px] overflow-x-hidden overflow-y-auto rounded-b-lg border-t border-line bg-sunken py-2 font-mono text-xs leading-5"
        >
          <div className="relative w-full" style={{ height: total }}>
            {rows.getVirtualItems().map((item) => {
              const line = lines[item.index];
              if (!line) return null;
              return (
                <div
                  key={item.key}
                  ref={rows.measureElement}
                  data-index={item.index}
                  className="absolute top-0 left-0 w-full"
                  style={{ transform: `translateY(${item.start}px)` }}
                >
                  <Line line={line} showAttempt={attempts > 1} />
                </div>
              );
            })}
          </div>
        </div>
      )}
    </Panel>
  );
}

const STREAMS: Record<LogLine["stream"], string> = {
  stdout: "border-transparent",
  stderr: "border-failed",
  log: "border-running",
  stoker: "border-accent",
};

const Line = memo(function Line({ line, showAttempt }: { line: LogLine; showAttempt: boolean }) {
  return (
    <div className={cx("flex gap-3 border-l-2 pr-4 pl-3", STREAMS[line.stream])} title={line.stream}>
      <time
        dateTime={new Date(line.time).toISOString()}
        title={exact(line.time)}
        className="shrink-0 text-faint select-none max-sm:hidden"
      >
        {clock(line.time)}
      </time>
      {showAttempt && (
        <span className="shrink-0 text-faint select-none" title={`Attempt ${line.attempt}`}>
          #{line.attempt}
        </span>
      )}
      <span className="wrap-any flex-1 whitespace-pre-wrap">
        {spansOf(line.text).map((span, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: a span is its place.
          <span key={index} style={styleOf(span)}>
            {span.text}
          </span>
        ))}
        {"\u200b"}
      </span>
    </div>
  );
});

function styleOf(span: Span): CSSProperties | undefined {
  const style: CSSProperties = {};
  if (span.color) style.color = span.color;
  if (span.background) style.background = `color-mix(in srgb, ${span.background} 25%, transparent)`;
  if (span.bold) style.fontWeight = 700;
  if (span.italic) style.fontStyle = "italic";
  if (span.dim) style.color = "var(--muted)";
  const lines = [span.underline && "underline", span.strike && "line-through"].filter(Boolean).join(" ");
  if (lines) style.textDecoration = lines;
  return style;
}
