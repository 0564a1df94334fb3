import type { Why } from "@/api/model";
import { Command } from "@/components/Command";
import { Icon } from "@/components/Icon";
import { Panel } from "@/components/Panel";
import { count, duration } from "@/lib/format";

/** Why a job that waits does not run, and what would change it. */
export function WhyPanel({ why }: { why: Why }) {
  return (
    <Panel
      title="Why is it not running?"
      actions={<code className="font-mono text-2xs text-faint">{why.code}</code>}
    >
      <p className="wrap-any font-medium">{why.summary}</p>
      {why.details.length > 0 && (
        <ul className="mt-1 text-muted">
          {why.details.map((detail) => (
            <li key={detail} className="wrap-any">
              {detail}
            </li>
          ))}
        </ul>
      )}
      {(why.position !== null || why.estimateSec !== null) && (
        <dl className="mt-3 flex gap-6">
          {why.position !== null && (
            <Fact name="Place in line" value={`${count(why.position)}${why.positionCapped ? "+" : ""}`} />
          )}
          {why.estimateSec !== null && <Fact name="Starts in about" value={duration(why.estimateSec)} />}
        </dl>
      )}
      {why.blockers.length > 0 && (
        <ul className="mt-3 flex flex-col gap-1">
          {why.blockers.map((blocker) => (
            <li key={`${blocker.kind}/${blocker.id}/${blocker.text}`} className="flex gap-2">
              <span className="mt-0.5 text-warn">
                <Icon name="warning" size={14} />
              </span>
              <span className="wrap-any">
                <span className="text-muted">{blocker.kind} </span>
                {blocker.text}
              </span>
            </li>
          ))}
        </ul>
      )}
      {why.commands.length > 0 && (
        <div className="mt-3 flex flex-col items-start gap-1.5">
          <p className="text-xs text-muted">Try</p>
          {why.commands.map((command) => (
            <Command key={command} text={command} />
          ))}
        </div>
      )}
    </Panel>
  );
}

const Fact = ({ name, value }: { name: string; value: string }) => (
  <div>
    <dt className="text-xs text-muted">{name}</dt>
    <dd className="text-lg font-semibold">{value}</dd>
  </div>
);
