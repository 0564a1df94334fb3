------------------------------ MODULE delivery ------------------------------
(***************************************************************************)
(* How a job is claimed, renewed, expired, reported and cancelled.         *)
(* docs/concepts/delivery.md tells the same in prose.                      *)
(*                                                                         *)
(* The store holds the jobs and the sessions; each of its steps is one     *)
(* transaction.  A session is one life of a worker process.  Messages may  *)
(* be late, come again, or be lost with the line they were on.  Time is    *)
(* not modelled; what the clocks guarantee stands as guards:               *)
(*  - a worker that is awake kills what it runs before the store gives its *)
(*    session up (Expire), because it counts its lease from the sending of *)
(*    the heartbeat and keeps a part of it for killing;                    *)
(*  - a worker that slept longer than its lease sees that on waking        *)
(*    (Resume): its clock went on;                                         *)
(*  - an assignment counts as lost (Reconcile) only when it cannot arrive  *)
(*    any more.  The code waits 5 s and takes that for sure.               *)
(* A retry is queued at once: its delay changes nothing here.              *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Jobs, Sessions,
    MaxAttempts,    \* attempts that may be charged to a job
    MaxFaults,      \* crashes, pauses, cuts and drains; fewer than sessions, so that one is spared
    Fence,          \* FALSE: a report is matched by job and status alone
    WorkerLease,    \* FALSE: a worker does not watch its own lease
    SureLoss        \* FALSE: an assignment that is late counts as lost, and may arrive all the same

VARIABLES
    job,        \* store: status, claim number, attempts charged, session, wish to cancel
    session,    \* store: "live" or "lost"
    machine,    \* "up", "paused" or "dead"
    link,       \* whether the session reaches a coordinator
    lease,      \* what the worker believes: its lease has not ended
    sent,       \* assignments on their way: <<session, job, claim>>
    runs,       \* what runs: <<session, job, claim>>
    reports,    \* ends that workers told or keep telling: <<session, job, claim, kind>>
    outcomes,   \* every final status ever written: <<job, claim that wrote it, status>>
    refused,    \* jobs whose cancel was acknowledged while they waited
    overslept,  \* sessions that were given up while their machine was paused
    faults      \* how many there were

vars == <<job, session, machine, link, lease, sent, runs, reports, outcomes, refused, overslept, faults>>

Final == {"completed", "failed", "cancelled"}
None == "none"

Init ==
    /\ job = [j \in Jobs |-> [status |-> "queued", claim |-> 0, attempt |-> 0, holder |-> None, wish |-> FALSE]]
    /\ session = [s \in Sessions |-> "live"]
    /\ machine = [s \in Sessions |-> "up"]
    /\ link = [s \in Sessions |-> TRUE]
    /\ lease = [s \in Sessions |-> TRUE]
    /\ sent = {} /\ runs = {} /\ reports = {} /\ outcomes = {} /\ refused = {} /\ overslept = {}
    /\ faults = 0

----------------------------------------------------------------------------
\* What the end of an attempt makes of its job: domain/retry.py.

Ended(j, kind) ==
    LET row == job[j]
        status == CASE kind = "completed" -> "completed"
                    [] kind = "cancelled" \/ row.wish -> "cancelled"
                    [] kind = "handed_back" -> "queued"
                    [] OTHER -> IF row.attempt >= MaxAttempts THEN "failed" ELSE "queued"
    IN [row EXCEPT !.status = status,
                   !.attempt = IF kind = "handed_back" THEN @ - 1 ELSE @,
                   !.holder = None]

Written(j, claim, kind) ==
    /\ job' = [job EXCEPT ![j] = Ended(j, kind)]
    /\ outcomes' = IF Ended(j, kind).status \in Final
                   THEN outcomes \union {<<j, claim, Ended(j, kind).status>>}
                   ELSE outcomes

----------------------------------------------------------------------------
\* The store and its coordinators.

Claim(j, s) ==
    /\ job[j].status = "queued" /\ session[s] = "live"
    /\ job' = [job EXCEPT ![j] = [@ EXCEPT !.status = "running", !.claim = @ + 1, !.attempt = @ + 1, !.holder = s]]
    /\ sent' = IF link[s] THEN sent \union {<<s, j, job[j].claim + 1>>} ELSE sent
    /\ UNCHANGED <<session, machine, link, lease, runs, reports, outcomes, refused, overslept, faults>>

\* A report is taken, perhaps for the second time. The fence: it must name the current claim.
Take(s, j, c, kind) ==
    /\ <<s, j, c, kind>> \in reports
    /\ job[j].status = "running" /\ (Fence => job[j].claim = c)
    /\ Written(j, c, kind)
    /\ UNCHANGED <<session, machine, link, lease, sent, runs, reports, refused, overslept, faults>>

\* A heartbeat that does not name a claim which was never seen to arrive.
Reconcile(j) ==
    LET s == job[j].holder
        c == job[j].claim
    IN /\ job[j].status = "running" /\ session[s] = "live" /\ machine[s] = "up" /\ link[s]
       /\ SureLoss => <<s, j, c>> \notin sent
       /\ <<s, j, c>> \notin runs
       /\ ~ \E r \in reports : r[2] = j /\ r[3] = c
       /\ Written(j, c, "handed_back")
       /\ UNCHANGED <<session, machine, link, lease, sent, runs, reports, refused, overslept, faults>>

Cancel(j) ==
    /\ ~ job[j].wish
    /\ \/ /\ job[j].status = "queued"
          /\ job' = [job EXCEPT ![j] = [@ EXCEPT !.status = "cancelled", !.wish = TRUE]]
          /\ outcomes' = outcomes \union {<<j, job[j].claim, "cancelled">>}
          /\ refused' = refused \union {j}
       \/ /\ job[j].status = "running"
          /\ job' = [job EXCEPT ![j] = [@ EXCEPT !.wish = TRUE]]
          /\ UNCHANGED <<outcomes, refused>>
    /\ UNCHANGED <<session, machine, link, lease, sent, runs, reports, overslept, faults>>

\* Silent for longer than the timeout. One transaction: the session and all that it held.
Expire(s) ==
    /\ session[s] = "live"
    /\ machine[s] # "up" \/ ~ link[s]
    /\ (WorkerLease /\ machine[s] = "up") => (~ lease[s] /\ \A r \in runs : r[1] # s)
    /\ session' = [session EXCEPT ![s] = "lost"]
    /\ LET held == {j \in Jobs : job[j].status = "running" /\ job[j].holder = s}
       IN /\ job' = [j \in Jobs |-> IF j \in held THEN Ended(j, "lost") ELSE job[j]]
          /\ outcomes' = outcomes \union
                 {<<j, job[j].claim, Ended(j, "lost").status>> : j \in {h \in held : Ended(h, "lost").status \in Final}}
    /\ overslept' = IF machine[s] = "paused" THEN overslept \union {s} ELSE overslept
    /\ UNCHANGED <<machine, link, lease, sent, runs, reports, refused, faults>>

----------------------------------------------------------------------------
\* The workers.

Awake(s) == machine[s] = "up"

Start(s, j, c) ==
    /\ <<s, j, c>> \in sent /\ Awake(s) /\ (WorkerLease => lease[s])
    /\ sent' = sent \ {<<s, j, c>>}
    /\ runs' = runs \union {<<s, j, c>>}
    /\ UNCHANGED <<job, session, machine, link, lease, reports, outcomes, refused, overslept, faults>>

\* It came after the lease had ended: declined.
Decline(s, j, c) ==
    /\ <<s, j, c>> \in sent /\ Awake(s) /\ WorkerLease /\ ~ lease[s]
    /\ sent' = sent \ {<<s, j, c>>}
    /\ reports' = reports \union {<<s, j, c, "handed_back">>}
    /\ UNCHANGED <<job, session, machine, link, lease, runs, outcomes, refused, overslept, faults>>

End(s, j, c, kind) ==
    /\ <<s, j, c>> \in runs /\ Awake(s)
    /\ kind = "cancelled" => job[j].wish
    /\ runs' = runs \ {<<s, j, c>>}
    /\ reports' = reports \union {<<s, j, c, kind>>}
    /\ UNCHANGED <<job, session, machine, link, lease, sent, outcomes, refused, overslept, faults>>

\* The line is back: the hello, or a heartbeat, is confirmed and extends the lease; a session that was given up is told so.
\* While the line stands, heartbeats do the same and change nothing here.
Renew(s) ==
    /\ Awake(s) /\ ~ link[s]
    /\ link' = [link EXCEPT ![s] = TRUE]
    /\ lease' = [lease EXCEPT ![s] = session[s] = "live"]
    /\ UNCHANGED <<job, session, machine, sent, runs, reports, outcomes, refused, overslept, faults>>

LeaseEnds(s) ==
    /\ WorkerLease /\ Awake(s) /\ ~ link[s] /\ lease[s]
    /\ lease' = [lease EXCEPT ![s] = FALSE]
    /\ UNCHANGED <<job, session, machine, link, sent, runs, reports, outcomes, refused, overslept, faults>>

Kill(s) ==
    /\ Awake(s) /\ WorkerLease /\ ~ lease[s] /\ \E r \in runs : r[1] = s
    /\ runs' = {r \in runs : r[1] # s}
    /\ reports' = reports \union {<<s, r[2], r[3], "lost">> : r \in {q \in runs : q[1] = s}}
    /\ UNCHANGED <<job, session, machine, link, lease, sent, outcomes, refused, overslept, faults>>

----------------------------------------------------------------------------
\* What happens to them.

Fault == faults < MaxFaults /\ faults' = faults + 1

Crash(s) ==
    /\ Fault /\ machine[s] # "dead"
    /\ machine' = [machine EXCEPT ![s] = "dead"]
    /\ runs' = {r \in runs : r[1] # s}
    /\ UNCHANGED <<job, session, link, lease, sent, reports, outcomes, refused, overslept>>

Pause(s) ==
    /\ Fault /\ Awake(s)
    /\ machine' = [machine EXCEPT ![s] = "paused"]
    /\ UNCHANGED <<job, session, link, lease, sent, runs, reports, outcomes, refused, overslept>>

Resume(s) ==
    /\ machine[s] = "paused"
    /\ machine' = [machine EXCEPT ![s] = "up"]
    /\ lease' = IF session[s] = "lost" THEN [lease EXCEPT ![s] = FALSE] ELSE lease
    /\ UNCHANGED <<job, session, link, sent, runs, reports, outcomes, refused, overslept, faults>>

\* The line breaks; what was on it may be lost, or may have arrived already.
Cut(s) ==
    /\ Fault /\ link[s]
    /\ link' = [link EXCEPT ![s] = FALSE]
    /\ \E gone \in SUBSET {m \in sent : m[1] = s} : sent' = sent \ gone
    /\ UNCHANGED <<job, session, machine, lease, runs, reports, outcomes, refused, overslept>>

\* A worker that leaves hands back what it runs.
Drain(s, j, c) ==
    /\ Fault /\ Awake(s) /\ <<s, j, c>> \in runs
    /\ runs' = runs \ {<<s, j, c>>}
    /\ reports' = reports \union {<<s, j, c, "handed_back">>}
    /\ UNCHANGED <<job, session, machine, link, lease, sent, outcomes, refused, overslept>>

----------------------------------------------------------------------------
Kinds == {"completed", "error", "cancelled", "handed_back", "lost"}
Claims(j) == 1..job[j].claim

Next ==
    \/ \E j \in Jobs : Cancel(j) \/ Reconcile(j)
    \/ \E j \in Jobs, s \in Sessions : Claim(j, s)
    \/ \E r \in reports : Take(r[1], r[2], r[3], r[4])
    \/ \E m \in sent : Start(m[1], m[2], m[3]) \/ Decline(m[1], m[2], m[3])
    \/ \E r \in runs : \/ \E kind \in {"completed", "error", "cancelled"} : End(r[1], r[2], r[3], kind)
                       \/ Drain(r[1], r[2], r[3])
    \/ \E s \in Sessions : \/ Expire(s) \/ Renew(s) \/ LeaseEnds(s) \/ Kill(s)
                           \/ Crash(s) \/ Pause(s) \/ Resume(s) \/ Cut(s)

\* No client has to cancel, and no fault has to happen. What a live part can do for ever, it does.
Fairness ==
    /\ \A j \in Jobs : WF_vars(Reconcile(j)) /\ WF_vars(\E s \in Sessions : machine[s] = "up" /\ link[s] /\ Claim(j, s))
    /\ \A j \in Jobs : WF_vars(\E r \in reports : r[2] = j /\ machine[r[1]] # "dead" /\ Take(r[1], r[2], r[3], r[4]))
    /\ \A s \in Sessions : /\ WF_vars(Expire(s)) /\ WF_vars(Renew(s)) /\ WF_vars(LeaseEnds(s)) /\ WF_vars(Kill(s))
                           /\ WF_vars(Resume(s))
                           /\ WF_vars(\E m \in sent : m[1] = s /\ (Start(m[1], m[2], m[3]) \/ Decline(m[1], m[2], m[3])))
                           /\ WF_vars(\E r \in runs : r[1] = s /\ End(r[1], r[2], r[3], "completed"))

Spec == Init /\ [][Next]_vars /\ Fairness

----------------------------------------------------------------------------
\* The promises.

TypeOK ==
    /\ \A j \in Jobs : /\ job[j].status \in Final \union {"queued", "running"}
                       /\ job[j].holder \in Sessions \union {None}
                       /\ (job[j].status = "running") = (job[j].holder # None)
    /\ \A r \in reports : r[3] \in Claims(r[2]) /\ r[4] \in Kinds

\* P3. One outcome per job, written under the claim that is the job's last.
OneOutcome ==
    \A j \in Jobs :
        LET written == {o \in outcomes : o[1] = j}
        IN /\ Cardinality(written) <= 1
           /\ (job[j].status \in Final) = (written # {})
           /\ \A o \in written : o[2] = job[j].claim /\ o[3] = job[j].status

\* P4. What is charged stays within the attempts.
Charged == \A j \in Jobs : job[j].attempt \in 0..MaxAttempts

\* P4. Two attempts of a job at once: then the machine of the older one was paused when its session was given up.
OverlapNeedsAPause ==
    \A a, b \in runs : (a[2] = b[2] /\ a[3] < b[3]) => a[1] \in overslept

\* P7. Nothing starts after the cancel of a waiting job was acknowledged.
NothingStartsAfterCancel ==
    [][\A r \in runs' : r[2] \in refused => r \in runs]_vars

\* P3. A claim number is never used twice, and a final status is never left.
ClaimsGrow == [][\A j \in Jobs : job'[j].claim >= job[j].claim]_vars
FinalStays == [][\A j \in Jobs : job[j].status \in Final => job'[j].status = job[j].status]_vars

\* P5. Everything ends.
EverythingEnds == \A j \in Jobs : <>(job[j].status \in Final)
=============================================================================
