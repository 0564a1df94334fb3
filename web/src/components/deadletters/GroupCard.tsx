import { type ReactNode, useId } from "react";
import type { DeadLetterGroup } from "@/api/model";
import { Icon } from "@/components/Icon";
import { Sparkline } from "@/components/Sparkline";
import { Time } from "@/components/Time";
import { cx } from "@/lib/cx";
import { compact, plural } from "@/lib/format";
import { isNew, piecesOf } from "./groups";

interface GroupCardProps {
  group: DeadLetterGroup;
  /** There is none of it any more; shown until it may move. */
  gone: boolean;
  now: number;
  open: boolean;
  onToggle: () => void;
  actions: ReactNode;
  canary: ReactNode;
  /** The jobs of the group, while it is open. */
  children: ReactNode;
}

/** Jobs that failed alike: how, where, how often and since when. */
export function GroupCard({ group, gone, now, open, onToggle, actions, canary, children }: GroupCardProps) {
  const id = useId();
  const Card = gone ? "div" : "article";
  return (
    <Card
      aria-label={gone ? undefined : `${group.errorType} in ${group.type}`}
      data-fingerprint={group.fingerprint}
      className={cx("min-w-0 rounded-lg border border-line bg-panel shadow-low", gone && "opacity-50")}
    >
      <div className="flex min-w-0 gap-x-4 gap-y-3 p-4 max-md:flex-col">
        <div className="min-w-0 flex-1">
          <button
            type="button"
            aria-expanded={open}
            aria-controls={id}
            onClick={onToggle}
            className="flex w-full min-w-0 items-start gap-2 text-left"
          >
            <span
              aria-hidden="true"
              className={cx("mt-0.5 shrink-0 text-muted transition-transform", open && "rotate-90")}
            >
              <Icon name="chevron" />
            </span>
            <span className="min-w-0">
              <span className="flex min-w-0 items-center gap-2">
                <span className="clip font-mono font-semibold text-failed">{group.errorType || "error"}</span>
                {isNew(group, now) && (
                  <span className="shrink-0 rounded-full border border-accent px-1.5 text-2xs leading-4 font-medium text-accent">
                    new
                  </span>
                )}
              </span>
              <span className="wrap-any line-clamp-3">
                {piecesOf(group.message).map((piece, index) =>
                  piece.hole ? (
                    <span
                      // biome-ignore lint/suspicious/noArrayIndexKey: a piece is its place.
                      key={index}
                      title="Differs from job to job"
                      className="mx-px rounded-sm bg-sunken px-1 font-mono text-2xs text-muted"
                    >
                      {piece.text}
                    </span>
                  ) : (
                    piece.text
                  ),
                )}
              </span>
            </span>
          </button>
          <p className="wrap-any mt-1 pl-6 text-xs text-muted">
            {group.type}
            {group.frame && (
              <>
                <span className="text-faint"> at </span>
                <code className="font-mono">{group.frame}</code>
              </>
            )}
          </p>
        </div>
        <div className="flex shrink-0 items-start gap-5 max-md:pl-6">
          <div>
            <Sparkline
              values={group.sparkline}
              label={`${plural(group.count, "failure")} since the first one, over time`}
              width={120}
              height={28}
              className="text-failed"
            />
            <p className="mt-1 text-2xs whitespace-nowrap text-muted">
              first <Time at={group.firstSeenAt} />
            </p>
          </div>
          <div className="w-20 text-right">
            <p className="text-xl font-semibold">{compact(group.count)}</p>
            <p className="text-2xs whitespace-nowrap text-muted">
              last <Time at={group.lastSeenAt} />
            </p>
          </div>
        </div>
      </div>
      <div className="flex flex-wrap items-center gap-2 border-t border-line px-4 py-2.5 pl-10">
        {actions}
        {canary}
      </div>
      <div id={id} hidden={!open} className="border-t border-line">
        {open && children}
      </div>
    </Card>
  );
}
