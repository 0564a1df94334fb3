import { useState } from "react";
import type { JobSpec } from "@/api/model";
import { CopyButton } from "@/components/CopyButton";
import { Panel } from "@/components/Panel";
import { RangePicker } from "@/components/RangePicker";
import { cli, curl, python } from "./snippets";

interface SnippetsProps {
  /** Null while the form cannot be sent. */
  spec: JobSpec | null;
  /** What it wants until then: "Fill in to." */
  wanting: string;
  origin: string;
  withToken: boolean;
}

const WAYS = ["curl", "CLI", "Python"] as const;

/** The same submission as code. */
export function Snippets({ spec, wanting, origin, withToken }: SnippetsProps) {
  const [way, setWay] = useState<(typeof WAYS)[number]>("curl");
  const text =
    spec === null
      ? ""
      : way === "curl"
        ? curl(spec, origin, withToken)
        : way === "CLI"
          ? cli(spec, origin)
          : python(spec, origin);
  return (
    <Panel
      title="Copy as code"
      actions={
        <>
          <RangePicker label="Language" choices={WAYS} value={way} onChange={setWay} />
          <CopyButton text={text} label={`Copy as ${way}`} />
        </>
      }
    >
      <pre
        // biome-ignore lint/a11y/noNoninteractiveTabindex: whoever has no mouse scrolls it with the keyboard.
        tabIndex={0}
        className="wrap-any max-h-80 overflow-auto rounded-md bg-sunken p-3 font-mono text-xs leading-5 whitespace-pre-wrap"
      >
        {spec === null ? <span className="text-muted">{wanting}</span> : text}
      </pre>
    </Panel>
  );
}
