import { type ReactNode, useState } from "react";
import { isExactNumber } from "@/api/json";
import { Icon } from "@/components/Icon";
import { cx } from "@/lib/cx";
import { count, plural } from "@/lib/format";

const OPEN_DEPTH = 2;
/** More children than this start closed. */
const OPEN_CHILDREN = 30;
const PAGE = 100;
const LONG_TEXT = 600;

/** Any JSON, open to the second level; numbers as they were written, text as text. */
export function Json({ value }: { value: unknown }) {
  return (
    <div className="font-mono text-xs leading-5">
      <Node value={value} depth={0} />
    </div>
  );
}

interface NodeProps {
  value: unknown;
  depth: number;
  name?: ReactNode;
  comma?: boolean;
}

function Node({ value, depth, name, comma = false }: NodeProps) {
  const isObject = typeof value === "object" && value !== null && !isExactNumber(value);
  if (isObject) return <Branch value={value} depth={depth} name={name} comma={comma} />;
  return (
    <div className="wrap-any pl-4">
      {name}
      <Leaf value={value} />
      {comma && <span className="text-faint">,</span>}
    </div>
  );
}

function Branch({ value, depth, name, comma }: NodeProps & { value: object }) {
  const list = Array.isArray(value);
  const entries: [string, unknown][] = list
    ? value.map((item, index) => [String(index), item])
    : Object.entries(value);
  const [open, setOpen] = useState(depth < OPEN_DEPTH && entries.length <= OPEN_CHILDREN);
  const [shown, setShown] = useState(PAGE);
  const [left, right] = list ? ["[", "]"] : ["{", "}"];
  if (entries.length === 0)
    return (
      <div className="wrap-any pl-4">
        {name}
        <span className="text-muted">
          {left}
          {right}
        </span>
        {comma && <span className="text-faint">,</span>}
      </div>
    );
  return (
    <div>
      <button
        type="button"
        aria-expanded={open}
        onClick={() => setOpen(!open)}
        className="wrap-any relative block w-full pl-4 text-left hover:bg-hover"
      >
        <span
          aria-hidden="true"
          className={cx("absolute top-1 left-0 inline-block text-faint", open && "rotate-90")}
        >
          <Icon name="chevron" size={12} />
        </span>
        {name}
        <span className="text-muted">{left}</span>
        {!open && (
          <span className="text-muted">
            {" "}
            {plural(entries.length, list ? "item" : "key")} {right}
            {comma && ","}
          </span>
        )}
      </button>
      {open && (
        <>
          <div className="ml-[5px] border-l border-line pl-2">
            {entries.slice(0, shown).map(([key, child], index) => (
              <Node
                key={key}
                value={child}
                depth={depth + 1}
                comma={index < entries.length - 1}
                name={list ? undefined : <Key text={key} />}
              />
            ))}
            {entries.length > shown && (
              <button
                type="button"
                className="pl-4 text-accent hover:underline"
                onClick={() => setShown(shown + PAGE * 10)}
              >
                {count(entries.length - shown)} more…
              </button>
            )}
          </div>
          <div className="pl-4 text-muted">
            {right}
            {comma && <span className="text-faint">,</span>}
          </div>
        </>
      )}
    </div>
  );
}

const Key = ({ text }: { text: string }) => (
  <>
    <span className="text-muted [unicode-bidi:isolate]">{text}</span>
    <span className="text-faint">: </span>
  </>
);

function Leaf({ value }: { value: unknown }) {
  if (typeof value === "string") return <Text text={value} />;
  if (isExactNumber(value)) return <span className="text-[var(--ansi-blue)]">{String(value)}</span>;
  return <span className="text-[var(--ansi-magenta)]">{String(value)}</span>;
}

function Text({ text }: { text: string }) {
  const [all, setAll] = useState(false);
  const cut = !all && text.length > LONG_TEXT;
  return (
    <>
      <span className="whitespace-pre-wrap text-[var(--ansi-green)] [unicode-bidi:isolate]">
        "{cut ? text.slice(0, LONG_TEXT) : text}
        {cut ? "…" : '"'}
      </span>
      {cut && (
        <button type="button" className="ml-1 text-accent hover:underline" onClick={() => setAll(true)}>
          all {count(text.length)} characters
        </button>
      )}
    </>
  );
}
