import { CopyButton } from "@/components/CopyButton";

const EXAMPLE = `@app.cron("0 9 * * 1-5", timezone="Europe/Berlin")
@app.task
def daily_report() -> None:
    ...


@app.every(900)
@app.task
def refresh() -> None:
    ...`;

/** How to declare schedules in Python. */
export function Declare() {
  return (
    <div className="relative w-full max-w-md rounded-md border border-line bg-sunken text-left">
      <div className="absolute top-1 right-1">
        <CopyButton text={EXAMPLE} label="Copy the example" />
      </div>
      <pre className="wrap-any p-3 pr-9 font-mono text-xs leading-5 whitespace-pre-wrap">{EXAMPLE}</pre>
    </div>
  );
}
