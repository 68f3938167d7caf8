------------------------------- MODULE commit -------------------------------
(***************************************************************************)
(* How the brokers of a cluster commit: the protocol of                    *)
(* fencepost/broker/cluster (engine.py, writer.py, rounds.py,              *)
(* shared_log.py), for many owners and guests.                             *)
(*                                                                         *)
(* The database holds the logs. A broker owns some of them; it has a view  *)
(* of each log that it owns, and appends that wait. One round cuts all     *)
(* that waits and commits it in one transaction. Brokers may be arbitrarily*)
(* slow, so a broker that was taken over goes on until a commit of its own *)
(* fails. Connections break before or after the transaction happened, and  *)
(* a transaction may still happen after its connection broke. The database *)
(* may go back in time.                                                    *)
(*                                                                         *)
(* Each constant whose name ends in Rule is one rule of the protocol. TLC  *)
(* finds no violation when all are TRUE (but SeqRule is redundant), and    *)
(* finds one when any other is FALSE. docs/models.md has the figures.      *)
(*                                                                         *)
(* What is left out: time (anybody may be taken over at any time), trimmed *)
(* and merged rows, deleted topics, and whether a transaction commits or   *)
(* aborts (its end looks the same to the protocol).                        *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Brokers,
    Coordinator,    \* the broker that owns the transaction log at first
    Leader,         \* the broker that owns the data logs at first
    DataLogs,
    Producers,      \* transactional producers
    Plain,          \* producers without a producer id; they never send again
    FixedPlain,     \* those of them whose records may not move
    Objects,        \* ids for objects; if there are none, all rows are inline
    None,
    MaxTxn, MaxSeq, \* transactions of a producer; records of one in one log
    MaxPlain,       \* records of a plain producer
    MaxTakeovers, MaxRestarts, MaxBreaks, MaxHandovers,
    MaxLosses       \* how often the database goes back in time

CONSTANTS
    FenceRule,      \* a commit names the newest incarnation of its broker
    SessionRule,    \* ... and the newest session
    SeqRule,        \* ... and the next sequence number
    PidRule,        \* an append does not move behind rows of its producers
    FixedRule,      \* a fixed append does not move at all
    ClaimRule,      \* the commit checks that its object is still claimed
    MarkRule,       \* garbage collection marks a claim before it deletes
    CutRule,        \* a round takes what waits in all logs, not in some
    RecheckRule,    \* after a move, what waits behind is checked again
    AbsorbRule,     \* rows are absorbed only when no commit is under way
    TakeoverRule,   \* a broker takes over only between two rounds
    SettleRule,     \* a living owner releases a log when none of its appends wait or are under way there
    DurableAddRule, \* an owner learns of a partition's add when it is durable
    StampRule,      \* the database stamps the slot's epoch on guests' rows
    NewLogRule,     \* a guest's marker may be the first row of its log
    PeerRule,       \* what a broker learns from another one counts as known
    HistoryRule     \* a broker that knows what the database has lost does nothing but reset the cluster

Txns == "txns"      \* the log of the transaction coordinator
Logs == DataLogs \cup {Txns}

VARIABLES
    \* The database
    log,        \* the records of each log
    owner,      \* the owner of each log's slot, or None
    epoch,      \* the leader epoch of each log's slot
    inc, ses,   \* the newest incarnation and session of each broker
    seq,        \* the number of each broker's last commit that happened
    answer,     \* the base offsets of that commit
    object,     \* the state of each object
    \* The object store
    stored,     \* the objects that exist
    \* The brokers
    me,         \* the identity that a broker has, or None: it knows it is fenced
    own,        \* the epoch of each log that a broker believes to own, else 0
    view,       \* what it knows of these logs
    waiting,    \* its appends
    round,      \* the round under way
    \* Between them
    late,       \* commits whose connection broke, and which may still happen
    \* The clients
    txn,        \* the number of each producer's transaction
    sent,       \* how many records a plain producer has sent
    \* For this model only
    used,       \* takeovers, restarts, breaks, handovers, losses so far; what a standby has; who knows of the loss
    wrong       \* what should never happen, and did

database == <<log, owner, epoch, inc, ses, seq, answer>>
store    == <<object, stored>>
clients  == <<txn, sent>>
vars     == <<database, store, me, own, view, waiting, round, late, clients, used, wrong>>

(***************************************************************************)
(* Records, and the rules that an owner checks (they are not the           *)
(* database's). A transaction's number stands for the producer's epoch.    *)
(***************************************************************************)
Record(kind, pid, n, number, at) ==
    [kind |-> kind, pid |-> pid, n |-> n, number |-> number, at |-> at, le |-> 0, object |-> None]

Data(p, n, number) == Record("data", p, n, number, 0)
Marker(p, n)       == Record("marker", p, n, 0, 0)
Add(p, n, l)       == Record("add", p, n, l, 0)
End(p, n)          == Record("end", p, n, 0, 0)

Same(a, b) == a.kind = b.kind /\ a.pid = b.pid /\ a.n = b.n /\ a.number = b.number
Has(s, r)  == \E i \in DOMAIN s : Same(s[i], r)
Pids(s)    == {s[i].pid : i \in DOMAIN s} \cap Producers
From(s, i) == SubSeq(s, i, Len(s))
Prefix(s, t) == Len(s) <= Len(t) /\ s = SubSeq(t, 1, Len(s))

Ended(s, p, n)  == \E i \in DOMAIN s : s[i].kind = "marker" /\ s[i].pid = p /\ s[i].n >= n
Number(s, p, n) == Cardinality({i \in DOMAIN s : s[i].kind = "data" /\ s[i].pid = p /\ s[i].n = n})

\* Whether a record may stand behind these: sequences, and nothing of a transaction after its end.
Holds(s, r) ==
    /\ r.kind = "data" /\ r.pid \in Producers => ~Ended(s, r.pid, r.n) /\ r.number = Number(s, r.pid, r.n) + 1
    /\ r.at # 0 => r.at = Len(s) + 1

\* Those of the waiting appends that still hold behind these rows.
RECURSIVE Recheck(_, _)
Recheck(rows, appends) ==
    IF appends = <<>> THEN <<>>
    ELSE IF Holds(rows, Head(appends))
         THEN <<Head(appends)>> \o Recheck(Append(rows, Head(appends)), Tail(appends))
         ELSE Recheck(rows, Tail(appends))

(***************************************************************************)
(* Brokers                                                                 *)
(***************************************************************************)
Idle       == [phase |-> "idle", cut |-> [l \in Logs |-> <<>>], expected |-> [l \in Logs |-> 0],
               object |-> None, base |-> [l \in Logs |-> 0]]
Owns(b, l) == me[b] # None /\ own[b][l] > 0
All(b, l)  == view[b][l] \o waiting[b][l]
IsCurrent(b) == me[b] # None /\ me[b].inc = inc[b] /\ me[b].ses = ses[b]

\* The process forgets everything: it learned that it is fenced, or it ended.
Forget(b) ==
    /\ own' = [own EXCEPT ![b] = [l \in Logs |-> 0]]
    /\ view' = [view EXCEPT ![b] = [l \in Logs |-> <<>>]]
    /\ waiting' = [waiting EXCEPT ![b] = [l \in Logs |-> <<>>]]
    /\ round' = [round EXCEPT ![b] = Idle]

Init ==
    /\ log = [l \in Logs |-> <<>>]
    /\ owner = [l \in Logs |-> IF l = Txns THEN Coordinator ELSE Leader]
    /\ epoch = [l \in Logs |-> 1]
    /\ inc = [b \in Brokers |-> 1]
    /\ ses = [b \in Brokers |-> 1]
    /\ seq = [b \in Brokers |-> 0]
    /\ answer = [b \in Brokers |-> [l \in Logs |-> 0]]
    /\ object = [o \in Objects |-> "free"]
    /\ stored = {}
    /\ me = [b \in Brokers |-> [inc |-> 1, ses |-> 1, seq |-> 0]]
    /\ own = [b \in Brokers |-> [l \in Logs |-> IF owner[l] = b THEN 1 ELSE 0]]
    /\ view = [b \in Brokers |-> [l \in Logs |-> <<>>]]
    /\ waiting = [b \in Brokers |-> [l \in Logs |-> <<>>]]
    /\ round = [b \in Brokers |-> Idle]
    /\ late = {}
    /\ txn = [p \in Producers |-> 1]
    /\ sent = [q \in Plain |-> 0]
    /\ used = [takeovers |-> 0, restarts |-> 0, breaks |-> 0, handovers |-> 0, losses |-> 0,
               saved |-> None, lost |-> {}, reset |-> FALSE]
    /\ wrong = {}

(***************************************************************************)
(* What clients ask for. An answer needs no step of its own: a broker      *)
(* acknowledges what is in its view.                                       *)
(***************************************************************************)
Wait(b, l, r) == [waiting[b] EXCEPT ![l] = Append(@, [r EXCEPT !.le = own[b][l]])]

\* The coordinator adds a partition to a transaction.
AddPartition(b, p, l) ==
    /\ Owns(b, Txns)
    /\ ~Has(All(b, Txns), Add(p, txn[p], l))
    /\ ~Has(All(b, Txns), End(p, txn[p]))
    /\ waiting' = [waiting EXCEPT ![b] = Wait(b, Txns, Add(p, txn[p], l))]
    /\ UNCHANGED <<database, store, me, own, view, round, late, clients, used, wrong>>

\* What a broker that believes to be the coordinator says to an owner, who asks whether the transaction is open.
Verifies(c, p, n, l) ==
    /\ Owns(c, Txns)
    /\ Has(IF DurableAddRule THEN view[c][Txns] ELSE All(c, Txns), Add(p, n, l))
    /\ ~Has(All(c, Txns), End(p, n))

\* A producer sends a record of its transaction, for the first time or again. What is there already changes nothing.
Produce(b, p, l) ==
    /\ Owns(b, l)
    /\ LET n == txn[p]
           r == Data(p, n, Number(All(b, l), p, n) + 1)
       IN  /\ r.number <= MaxSeq
           /\ \E c \in Brokers \ used.lost : Verifies(c, p, n, l)
           /\ Holds(All(b, l), r)
           /\ waiting' = [waiting EXCEPT ![b] = Wait(b, l, r)]
    /\ UNCHANGED <<database, store, me, own, view, round, late, clients, used, wrong>>

\* A record without a producer id.
ProducePlain(b, q, l) ==
    /\ Owns(b, l) /\ sent[q] < MaxPlain
    /\ sent' = [sent EXCEPT ![q] = @ + 1]
    /\ LET at == IF q \in FixedPlain THEN Len(All(b, l)) + 1 ELSE 0
       IN  waiting' = [waiting EXCEPT ![b] = Wait(b, l, Record("data", q, 0, sent[q] + 1, at))]
    /\ UNCHANGED <<database, store, me, own, view, round, late, txn, used, wrong>>

\* EndTxn, or a timeout: the decision, and a marker in each of the transaction's logs, in one instant.
EndTxn(b, p, n) ==
    /\ Owns(b, Txns)
    /\ LET added == {l \in DataLogs : Has(All(b, Txns), Add(p, n, l))}
           marked(l) == [Marker(p, n) EXCEPT !.le = own[b][l]]
       IN  /\ added # {}
           /\ ~Has(All(b, Txns), End(p, n))
           /\ waiting' = [waiting EXCEPT ![b] =
                  [l \in Logs |-> IF l \in added THEN Append(waiting[b][l], marked(l)) ELSE Wait(b, Txns, End(p, n))[l]]]
    /\ UNCHANGED <<database, store, me, own, view, round, late, clients, used, wrong>>

\* The producer learns that its transaction has ended, and begins the next one.
NextTxn(b, p) ==
    /\ Owns(b, Txns) /\ txn[p] < MaxTxn
    /\ Has(view[b][Txns], End(p, txn[p]))
    /\ txn' = [txn EXCEPT ![p] = @ + 1]
    /\ UNCHANGED <<database, store, me, own, view, waiting, round, late, sent, used, wrong>>

(***************************************************************************)
(* A round. Logs that the broker does not own have guests' markers only;   *)
(* they expect nothing. A claim and the put of its object are one step.    *)
(***************************************************************************)
Free == {o \in Objects : object[o] = "free"}

Claim(o) ==
    IF o = None THEN UNCHANGED store
    ELSE object' = [object EXCEPT ![o] = "claimed"] /\ stored' = stored \cup {o}

Begin(b) ==
    /\ me[b] # None /\ round[b].phase = "idle"
    /\ \E cut \in SUBSET {l \in Logs : waiting[b][l] # <<>>}, o \in (IF Free = {} THEN {None} ELSE Free) :
        /\ cut # {}
        /\ CutRule => \A l \in Logs \ cut : waiting[b][l] = <<>>
        /\ Claim(o)
        /\ round' = [round EXCEPT ![b] =
               [phase |-> "sent", object |-> o, base |-> Idle.base,
                cut |-> [l \in Logs |-> IF l \in cut THEN waiting[b][l] ELSE <<>>],
                expected |-> [l \in Logs |-> IF own[b][l] > 0 THEN Len(view[b][l]) ELSE None]]]
    /\ UNCHANGED <<database, me, own, view, waiting, late, clients, used, wrong>>

\* A commit on its way: what is sent, by which broker, over which session.
Request(b) == [broker |-> b, id |-> me[b], round |-> round[b]]

Fenced(r) == LET b == r.broker IN
    \/ FenceRule /\ r.id.inc # inc[b]
    \/ SessionRule /\ r.id.ses # ses[b]
    \/ SeqRule /\ r.id.seq # seq[b]

\* The logs whose appends would have to move, and may not.
Conflicts(r) == LET cut == r.round.cut  expected == r.round.expected IN
    {l \in {k \in Logs : cut[k] # <<>>} :
        IF expected[l] = None THEN log[l] = <<>> /\ ~NewLogRule
        ELSE \/ Len(log[l]) < expected[l]
             \/ /\ Len(log[l]) > expected[l]
                /\ \/ PidRule /\ Pids(cut[l]) \cap Pids(From(log[l], expected[l] + 1)) # {}
                   \/ FixedRule /\ \E i \in DOMAIN cut[l] : cut[l][i].at # 0}

ClaimLost(r) == ClaimRule /\ r.round.object # None /\ object[r.round.object] # "claimed"

Succeeds(r) == ~Fenced(r) /\ Conflicts(r) = {} /\ ~ClaimLost(r)

\* The rows as they are in the database.
Rows(r, l) == LET cut == r.round.cut[l] IN
    [i \in DOMAIN cut |-> [cut[i] EXCEPT
        !.object = r.round.object,
        !.le = IF r.round.expected[l] = None /\ StampRule THEN epoch[l] ELSE @]]

\* The transaction. An incarnation that is not the newest must change nothing.
Transaction(r) ==
    /\ log' = [l \in Logs |-> log[l] \o Rows(r, l)]
    /\ seq' = [seq EXCEPT ![r.broker] = r.id.seq + 1]
    /\ answer' = [answer EXCEPT ![r.broker] = [l \in Logs |-> Len(log[l])]]
    /\ object' = [o \in Objects |-> IF o = r.round.object THEN "live" ELSE object[o]]
    /\ wrong' = IF r.id.inc = inc[r.broker] THEN wrong ELSE wrong \cup {"a fenced broker changed a log"}
    /\ UNCHANGED <<owner, epoch, inc, ses, stored>>

\* The commit happens; its answer is on its way.
Commit(b) ==
    /\ round[b].phase = "sent" /\ Succeeds(Request(b))
    /\ Transaction(Request(b))
    /\ round' = [round EXCEPT ![b].phase = "done", ![b].base = [l \in Logs |-> Len(log[l])]]
    /\ UNCHANGED <<me, own, view, waiting, late, clients, used>>

\* A commit whose connection broke happens, or fails; no broker sees the answer.
CommitLate(r) ==
    /\ r \in late
    /\ late' = late \ {r}
    /\ IF Succeeds(r) THEN Transaction(r) ELSE UNCHANGED <<database, store, wrong>>
    /\ UNCHANGED <<me, own, view, waiting, round, clients, used>>

\* The broker learns that it was taken over. Without a takeover that must not happen.
LearnFence(b) ==
    /\ \/ round[b].phase = "sent" /\ Fenced(Request(b))
       \/ round[b].phase = "broken" /\ me[b].inc # inc[b]
    /\ me' = [me EXCEPT ![b] = None]
    /\ wrong' = IF me[b].inc = inc[b] THEN wrong \cup {"fenced without a takeover"} ELSE wrong
    /\ Forget(b)
    /\ UNCHANGED <<database, store, late, clients, used>>

\* Rows of other brokers came first. The broker absorbs them, and checks its appends in these logs again.
Refuse(b) ==
    LET r == Request(b)  found == Conflicts(r) IN
    /\ round[b].phase = "sent" /\ ~Fenced(r) /\ found # {}
    /\ view' = [view EXCEPT ![b] = [l \in Logs |-> IF l \in found /\ own[b][l] > 0 THEN log[l] ELSE view[b][l]]]
    /\ waiting' = [waiting EXCEPT ![b] =
           [l \in Logs |-> IF l \in found THEN Recheck(log[l], waiting[b][l]) ELSE waiting[b][l]]]
    /\ round' = [round EXCEPT ![b] = Idle]
    /\ wrong' = IF \E l \in found : r.round.expected[l] = None THEN wrong \cup {"a guest was refused"} ELSE wrong
    /\ UNCHANGED <<database, store, me, own, late, clients, used>>

\* The object was collected: its bytes are put again under another id, or inline.
PutAgain(b) ==
    LET r == Request(b) IN
    /\ round[b].phase = "sent" /\ ~Fenced(r) /\ Conflicts(r) = {} /\ ClaimLost(r)
    /\ \E o \in (IF Free = {} THEN {None} ELSE Free) : Claim(o) /\ round' = [round EXCEPT ![b].object = o]
    /\ UNCHANGED <<database, me, own, view, waiting, late, clients, used, wrong>>

\* The answer arrives; it is handled by what the broker owns now. What waits behind the cut is checked again if rows of
\* others came first.
Deliver(b) ==
    LET cut == round[b].cut  base == round[b].base
        mine(l) == own[b][l] > 0 /\ cut[l] # <<>>
        foreign(l) == SubSeq(log[l], Len(view[b][l]) + 1, base[l])
        known(l) == IF mine(l) THEN view[b][l] \o foreign(l) \o Rows(Request(b), l) ELSE view[b][l]
        rest(l) == From(waiting[b][l], Len(cut[l]) + 1)
    IN
    /\ round[b].phase = "done"
    /\ view' = [view EXCEPT ![b] = [l \in Logs |-> known(l)]]
    /\ waiting' = [waiting EXCEPT ![b] = [l \in Logs |->
           IF mine(l) /\ foreign(l) # <<>> /\ RecheckRule THEN Recheck(known(l), rest(l)) ELSE rest(l)]]
    /\ me' = [me EXCEPT ![b].seq = @ + 1]
    /\ round' = [round EXCEPT ![b] = Idle]
    /\ UNCHANGED <<database, store, own, late, clients, used, wrong>>

\* The connection breaks: the commit happened before, or may still happen, or is lost.
Break(b) ==
    /\ me[b] # None /\ round[b].phase \in {"sent", "done"} /\ used.breaks < MaxBreaks
    /\ used' = [used EXCEPT !.breaks = @ + 1]
    /\ late' = IF round[b].phase = "sent" THEN late \cup {Request(b)} ELSE late
    /\ round' = [round EXCEPT ![b].phase = "broken"]
    /\ UNCHANGED <<database, store, me, own, view, waiting, clients, wrong>>

\* A new session tells whether the last commit happened, and where its rows are. If it did not, it is sent again.
OpenSession(b) ==
    /\ round[b].phase = "broken" /\ me[b].inc = inc[b]
    /\ ses' = [ses EXCEPT ![b] = @ + 1]
    /\ me' = [me EXCEPT ![b].ses = ses[b] + 1]
    /\ round' = [round EXCEPT ![b].phase = IF seq[b] = me[b].seq THEN "sent" ELSE "done",
                              ![b].base = IF seq[b] = me[b].seq THEN @ ELSE answer[b]]
    /\ UNCHANGED <<log, owner, epoch, inc, seq, answer, store, own, view, waiting, late, clients, used, wrong>>

(***************************************************************************)
(* Ownership                                                               *)
(***************************************************************************)

\* An owner reads the rows of guests without a commit of its own.
Absorb(b, l) ==
    /\ Owns(b, l) /\ Len(view[b][l]) < Len(log[l])
    /\ AbsorbRule => round[b].phase = "idle"
    /\ view' = [view EXCEPT ![b][l] = log[l]]
    /\ waiting' = [waiting EXCEPT ![b][l] = Recheck(log[l], @)]
    /\ UNCHANGED <<database, store, me, own, round, late, clients, used, wrong>>

\* A broker takes over all logs of another one, and those without an owner. Markers that wait as a guest's become an
\* owner's appends.
TakeOver(b, from) ==
    LET taken == {l \in Logs : owner[l] \in {from, None}} IN
    /\ IsCurrent(b) /\ b # from /\ \E l \in Logs : owner[l] = from
    /\ used.takeovers < MaxTakeovers
    /\ TakeoverRule => round[b].phase = "idle"
    /\ used' = [used EXCEPT !.takeovers = @ + 1]
    /\ inc' = IF from = None THEN inc ELSE [inc EXCEPT ![from] = @ + 1]
    /\ owner' = [l \in Logs |-> IF l \in taken THEN b ELSE owner[l]]
    /\ epoch' = [l \in Logs |-> IF l \in taken THEN epoch[l] + 1 ELSE epoch[l]]
    /\ own' = [own EXCEPT ![b] = [l \in Logs |-> IF l \in taken THEN epoch[l] + 1 ELSE own[b][l]]]
    /\ view' = [view EXCEPT ![b] = [l \in Logs |-> IF l \in taken THEN log[l] ELSE view[b][l]]]
    /\ waiting' = [waiting EXCEPT ![b] = [l \in Logs |->
           IF l \notin taken THEN waiting[b][l]
           ELSE [i \in DOMAIN waiting[b][l] |-> [waiting[b][l][i] EXCEPT !.le = epoch[l] + 1]]]]
    /\ UNCHANGED <<log, ses, seq, answer, store, me, round, late, clients, wrong>>

\* A living owner stops leading a log, in one instant: it forgets the log, with what waits there. Its markers for the log
\* are a guest's from now on.
Release(b, l) ==
    /\ Owns(b, l) /\ IsCurrent(b) /\ used.handovers < MaxHandovers
    /\ SettleRule => waiting[b][l] = <<>> /\ round[b].cut[l] = <<>>
    /\ used' = [used EXCEPT !.handovers = @ + 1]
    /\ own' = [own EXCEPT ![b][l] = 0]
    /\ view' = [view EXCEPT ![b][l] = <<>>]
    /\ waiting' = [waiting EXCEPT ![b][l] = <<>>]
    /\ UNCHANGED <<database, store, me, round, late, clients, wrong>>

\* Then the database learns that the log has no owner. Another broker may take it over.
GiveUp(b, l) ==
    /\ IsCurrent(b) /\ owner[l] = b /\ own[b][l] = 0
    /\ owner' = [owner EXCEPT ![l] = None]
    /\ UNCHANGED <<log, epoch, inc, ses, seq, answer, store, me, own, view, waiting, round, late, clients, used, wrong>>

\* The process ends (in order or not) and another one joins. Its logs have no owner then.
Restart(b) ==
    /\ used.restarts < MaxRestarts
    /\ used' = [used EXCEPT !.restarts = @ + 1, !.lost = @ \ {b}]
    /\ inc' = [inc EXCEPT ![b] = @ + 1]
    /\ ses' = [ses EXCEPT ![b] = @ + 1]
    /\ owner' = [l \in Logs |-> IF owner[l] = b THEN None ELSE owner[l]]
    /\ me' = [me EXCEPT ![b] = [inc |-> inc[b] + 1, ses |-> ses[b] + 1, seq |-> seq[b]]]
    /\ late' = IF round[b].phase = "sent" THEN late \cup {Request(b)} ELSE late
    /\ Forget(b)
    /\ UNCHANGED <<log, epoch, seq, answer, store, clients, wrong>>

(***************************************************************************)
(* Garbage collection. A claim of any age may be taken for garbage.        *)
(***************************************************************************)
Mark(o) ==
    /\ object[o] = "claimed" /\ MarkRule
    /\ object' = [object EXCEPT ![o] = "doomed"]
    /\ UNCHANGED <<database, stored, me, own, view, waiting, round, late, clients, used, wrong>>

Delete(o) ==
    /\ object[o] = (IF MarkRule THEN "doomed" ELSE "claimed") /\ o \in stored
    /\ stored' = stored \ {o}
    /\ object' = IF MarkRule THEN [object EXCEPT ![o] = "forgotten"] ELSE object
    /\ UNCHANGED <<database, me, own, view, waiting, round, late, clients, used, wrong>>

(***************************************************************************)
(* The database goes back to what a standby has, or an older copy. All     *)
(* connections break. A broker compares what it knows with the database    *)
(* before it does anything else (history.py); it may be arbitrarily late.  *)
(***************************************************************************)
Save ==
    /\ used.saved = None /\ used.losses < MaxLosses
    /\ used' = [used EXCEPT !.saved = [log |-> log, owner |-> owner, epoch |-> epoch, inc |-> inc, ses |-> ses,
                                      seq |-> seq, answer |-> answer]]
    /\ UNCHANGED <<database, store, me, own, view, waiting, round, late, clients, wrong>>

\* Whether a broker has read or committed something that these tables lack.
Knows(b, s) ==
    /\ me[b] # None
    /\ \/ me[b].inc > s.inc[b] \/ me[b].ses > s.ses[b] \/ me[b].seq > s.seq[b]
       \/ round[b].phase = "done" /\ s.seq[b] = me[b].seq
       \/ \E l \in Logs : own[b][l] > s.epoch[l] \/ ~Prefix(view[b][l], s.log[l])
       \/ PeerRule /\ \E l \in DataLogs : \E i \in DOMAIN waiting[b][l] : LET r == waiting[b][l][i] IN
              r.kind = "data" /\ r.pid \in Producers /\ ~Has(s.log[Txns], Add(r.pid, r.n, l))

GoBack ==
    /\ used.saved # None
    /\ LET s == used.saved IN
       /\ log' = s.log /\ owner' = s.owner /\ epoch' = s.epoch /\ inc' = s.inc /\ ses' = s.ses /\ seq' = s.seq
       /\ answer' = s.answer
       /\ used' = [used EXCEPT !.losses = @ + 1, !.saved = None, !.reset = FALSE,
                              !.lost = IF HistoryRule THEN {b \in Brokers : Knows(b, s)} ELSE {}]
    /\ late' = {}
    /\ round' = [b \in Brokers |-> IF round[b].phase = "idle" THEN round[b] ELSE [round[b] EXCEPT !.phase = "broken"]]
    /\ UNCHANGED <<store, me, own, view, waiting, clients, wrong>>

\* The first broker that finds the loss fences all. Each joins again, as after an end of its process.
LearnLoss(b) ==
    /\ used' = [used EXCEPT !.lost = @ \ {b}, !.reset = TRUE]
    /\ me' = [me EXCEPT ![b] = None]
    /\ inc' = IF used.reset THEN inc ELSE [c \in Brokers |-> inc[c] + 1]
    /\ owner' = IF used.reset THEN owner ELSE [l \in Logs |-> None]
    /\ Forget(b)
    /\ UNCHANGED <<log, epoch, ses, seq, answer, store, late, clients, wrong>>

Next ==
    \/ \E b \in used.lost : LearnLoss(b) \/ Restart(b)
    \/ Save \/ GoBack
    \/ \E b \in Brokers \ used.lost :
        \/ \E p \in Producers, l \in DataLogs : AddPartition(b, p, l) \/ Produce(b, p, l)
        \/ \E q \in Plain, l \in DataLogs : ProducePlain(b, q, l)
        \/ \E p \in Producers, n \in 1..MaxTxn : EndTxn(b, p, n)
        \/ \E p \in Producers : NextTxn(b, p)
        \/ Begin(b) \/ Commit(b) \/ LearnFence(b) \/ Refuse(b) \/ PutAgain(b) \/ Deliver(b)
        \/ Break(b) \/ OpenSession(b) \/ Restart(b)
        \/ \E l \in Logs : Absorb(b, l) \/ Release(b, l) \/ GiveUp(b, l)
        \/ \E from \in Brokers \cup {None} : TakeOver(b, from)
    \/ \E r \in late : CommitLate(r)
    \/ \E o \in Objects : Mark(o) \/ Delete(o)

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* What must hold                                                          *)
(***************************************************************************)

\* A broker's view is the beginning of the log: it may be old, and is never wrong. Brokers acknowledge what is in their
\* view, and logs only grow. So no acknowledged record is lost.
\* When the database goes back, what was lost is lost; who knows of it does nothing any more.
ViewIsPrefix == \A b \in Brokers \ used.lost, l \in Logs : Prefix(view[b][l], log[l])
LogsGrow == [][used'.losses > used.losses \/ \A l \in Logs : Prefix(log[l], log'[l])]_vars

NothingDoubled == \A l \in Logs : \A i, j \in DOMAIN log[l] : i # j => ~Same(log[l][i], log[l][j])

\* The records of a transaction are in the order in which they were sent, without a gap; none comes after its end.
InOrder == \A l \in DataLogs : \A i \in DOMAIN log[l] :
    LET r == log[l][i]  before == SubSeq(log[l], 1, i - 1) IN
    r.kind = "data" /\ r.pid \in Producers => r.number = Number(before, r.pid, r.n) + 1
NothingLate == \A l \in DataLogs : \A i, j \in DOMAIN log[l] :
    LET r == log[l][i]  s == log[l][j] IN
    r.kind = "data" /\ s.kind = "marker" /\ s.pid = r.pid /\ s.n >= r.n => i < j

\* The end of a transaction is in all its logs, or in none; each log with a record of it is one of its logs.
Ends == {<<p, n>> \in Producers \X (1..MaxTxn) : Has(log[Txns], End(p, n))}
EndIsWhole == \A p \in Producers, n \in 1..MaxTxn, l \in DataLogs :
    /\ Has(log[l], Marker(p, n)) => <<p, n>> \in Ends
    /\ <<p, n>> \in Ends /\ (Has(log[Txns], Add(p, n, l)) \/ Number(log[l], p, n) > 0) => Has(log[l], Marker(p, n))

\* A log with records of a transaction is durably one of its logs: else nobody would end the transaction there.
NothingHangs == \A p \in Producers, n \in 1..MaxTxn, l \in DataLogs :
    Number(log[l], p, n) > 0 => Has(log[Txns], Add(p, n, l))

FixedStayInPlace == \A l \in Logs : \A i \in DOMAIN log[l] : log[l][i].at \in {0, i}
ObjectsExist == \A l \in Logs : \A i \in DOMAIN log[l] : log[l][i].object \in stored \cup {None}
EpochsRise == \A l \in Logs : \A i, j \in DOMAIN log[l] : i < j => log[l][i].le <= log[l][j].le
NothingWrong == wrong = {}
=============================================================================
