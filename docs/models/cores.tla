------------------------------- MODULE cores -------------------------------
(***************************************************************************)
(* One transactional id, and the leaders of its partitions on other cores. *)
(* Markers are messages, which are lost, late and doubled. The coordinator *)
(* restarts with what is durable, and partitions move between cores. See   *)
(* docs/models.md.                                                         *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
    None,
    Leaders,      \* of the partitions
    Version,      \* of the transaction protocol: 1 or 2
    MaxTxn, MaxRestarts, MaxMoves,
    DurableRule,  \* markers leave when the Prepare record is durable
    EpochRule,    \* a restart raises the coordinator's epoch
    FenceRule,    \* a leader refuses markers of a lower coordinator epoch than it has seen
    MarkerRule,   \* in TV2 a marker must have a higher epoch than the open transaction
    RetryRule,    \* a marker without an answer is sent again
    OnceRule,     \* in TV1 a life sends a marker again only when its last request, or the answer, is lost
    LeadRule,     \* a core writes no marker to a partition that has moved away
    TakeRule      \* a core that begins to coordinate another core's transactions raises the coordinator's epoch

Verdicts == {"commit", "abort"}
Txns == 1..MaxTxn

VARIABLES
    mem, disk,    \* the coordinator's state of the id: in memory, and durable
    life, epoch,  \* of the coordinator
    pending,      \* the leaders that lack their marker, as this life knows
    net,          \* messages on their way
    log,          \* of each leader: the open transaction, its epoch, the coordinator's epoch, ended transactions
    decided,      \* the durable decisions
    answered,     \* the transactions whose EndTxn was answered
    wrote,        \* leader and transaction of acknowledged records
    moved         \* the partitions that have moved to another core; the coordinator's counts as one
vars == <<mem, disk, life, epoch, pending, net, log, decided, answered, wrote, moved>>

Open(n) == [n |-> n, phase |-> "open", verdict |-> None]
DataEpoch(n) == IF Version = 2 THEN n ELSE 1
MarkerEpoch(n) == IF Version = 2 THEN n + 1 ELSE 1

Init ==
    /\ mem = Open(1) /\ disk = Open(1) /\ life = 1 /\ epoch = 1 /\ pending = {} /\ net = {}
    /\ log = [l \in Leaders |-> [open |-> None, epoch |-> 0, coordinator |-> 0, ended |-> [n \in Txns |-> None]]]
    /\ decided = [n \in Txns |-> None] /\ answered = {} /\ wrote = {}
    /\ moved = {}

\* A partition joins a transaction durably before its first record is accepted.
Write(l) ==
    /\ mem.phase = "open" /\ disk = mem /\ log[l].open = None /\ DataEpoch(mem.n) >= log[l].epoch
    /\ log[l].ended[mem.n] = None
    /\ log' = [log EXCEPT ![l].open = mem.n, ![l].epoch = DataEpoch(mem.n)]
    /\ wrote' = wrote \cup {<<l, mem.n>>}
    /\ UNCHANGED <<mem, disk, life, epoch, pending, net, decided, answered, moved>>

\* EndTxn, or the transaction's timeout.
Decide(v) ==
    /\ mem.phase = "open"
    /\ mem' = [mem EXCEPT !.phase = "prepare", !.verdict = v]
    /\ pending' = Leaders
    /\ UNCHANGED <<disk, life, epoch, net, log, decided, answered, wrote, moved>>

Flush ==
    /\ disk # mem
    /\ disk' = mem
    /\ decided' = IF mem.phase = "prepare" THEN [decided EXCEPT ![mem.n] = mem.verdict] ELSE decided
    /\ UNCHANGED <<mem, life, epoch, pending, net, log, answered, wrote, moved>>

\* In TV2 a message is never lost, because it may stay on its way for ever, and comes as often as it likes.
Lasts == Version = 2

Marker(l) == [kind |-> "marker", to |-> l, n |-> mem.n, verdict |-> mem.verdict, life |-> life, epoch |-> epoch,
              there |-> l \in moved]

Send(l) ==
    /\ mem.phase = "prepare" /\ l \in pending /\ (DurableRule => disk = mem)
    /\ OnceRule => \A m \in net : m.to = l /\ m.life = life /\ m.n = mem.n => Lasts /\ m.kind = "marker"
    /\ net' = net \cup {Marker(l)}
    /\ UNCHANGED <<mem, disk, life, epoch, pending, log, decided, answered, wrote, moved>>

Refused(m) == LET there == log[m.to] IN
    \/ MarkerRule /\ Version = 2 /\ MarkerEpoch(m.n) <= there.epoch /\ there.open # None
    \/ MarkerRule /\ MarkerEpoch(m.n) < there.epoch
    \/ FenceRule /\ m.epoch < there.coordinator

\* It comes to a core from which the partition has moved away since; an error is as a lost message.
Gone(m) == m.there # (m.to \in moved)

\* A leader reads a marker; its answer leaves when the marker is durable. A crash of the leader before that is a lost
\* message. An answer that no completion waits for is nothing.
Receive(m) ==
    LET l == m.to  there == log[l]
        after == [there EXCEPT !.open = None, !.epoch = MarkerEpoch(m.n), !.coordinator = m.epoch,
                               !.ended = IF there.open = None THEN @ ELSE [@ EXCEPT ![there.open] = m.verdict]]
    IN
    /\ m.kind = "marker"
    /\ log' = IF Refused(m) \/ Gone(m) THEN log ELSE [log EXCEPT ![l] = after]
    /\ net' = (IF Lasts THEN net ELSE net \ {m})
              \cup (IF Gone(m) /\ LeadRule THEN {}
                    ELSE IF m.life = life /\ m.n = mem.n /\ mem.phase = "prepare" THEN {[m EXCEPT !.kind = "answer"]} ELSE {})
    /\ UNCHANGED <<mem, disk, life, epoch, pending, decided, answered, wrote, moved>>

Lose(m) ==
    /\ ~Lasts \/ m.kind = "answer" \/ ~RetryRule
    /\ net' = net \ {m}
    /\ pending' = IF RetryRule \/ m.life # life \/ m.n # mem.n THEN pending ELSE pending \ {m.to}
    /\ UNCHANGED <<mem, disk, life, epoch, log, decided, answered, wrote, moved>>

TakeAnswer(m) ==
    /\ m.kind = "answer" /\ m.life = life /\ m.n = mem.n /\ mem.phase = "prepare"
    /\ pending' = pending \ {m.to} /\ net' = {other \in net : other.kind = "marker" \/ other.to # m.to}
    /\ UNCHANGED <<mem, disk, life, epoch, log, decided, answered, wrote, moved>>

\* All leaders have their marker: EndTxn is answered, and the next transaction may begin.
Complete ==
    /\ mem.phase = "prepare" /\ disk = mem /\ pending = {}
    /\ answered' = answered \cup {mem.n}
    /\ mem' = IF mem.n < MaxTxn THEN Open(mem.n + 1) ELSE [mem EXCEPT !.phase = "end"]
    /\ UNCHANGED <<disk, life, epoch, pending, net, log, decided, wrote, moved>>

Load ==
    /\ life' = life + 1 /\ mem' = disk
    /\ pending' = IF disk.phase = "prepare" THEN Leaders ELSE {}
    /\ net' = {m \in net : m.kind = "marker"}

Restart ==
    /\ life - Cardinality({"coordinator"} \cap moved) <= MaxRestarts
    /\ epoch' = IF EpochRule THEN epoch + 1 ELSE epoch
    /\ Load
    /\ UNCHANGED <<disk, log, decided, answered, wrote, moved>>

\* A partition moves with all that is in its log. The core that loads the coordinator's may have started first.
Move(what) ==
    /\ Cardinality(moved) < MaxMoves /\ moved' = moved \cup {what}
    /\ IF what = "coordinator"
       THEN disk = mem /\ Load /\ epoch' = IF TakeRule THEN epoch + 1 ELSE 0
       ELSE UNCHANGED <<mem, life, epoch, pending, net>>
    /\ UNCHANGED <<disk, log, decided, answered, wrote>>

Next ==
    \/ \E l \in Leaders : Write(l) \/ Send(l)
    \/ \E v \in Verdicts : Decide(v)
    \/ Flush \/ Complete \/ Restart
    \/ \E what \in (Leaders \cup {"coordinator"}) \ moved : Move(what)
    \/ \E m \in net : Receive(m) \/ Lose(m) \/ TakeAnswer(m)

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* What must hold                                                          *)
(***************************************************************************)

\* A marker ends a transaction only as it was durably decided: so none is torn, and none ends while it is open.
EndsAsDecided == \A l \in Leaders, n \in Txns : log[l].ended[n] \in {None, decided[n]}

\* A transaction whose EndTxn was answered has ended everywhere.
AnsweredIsWhole == \A w \in wrote : w[2] \in answered => log[w[1]].ended[w[2]] = decided[w[2]]

\* The next transaction of an id finds no open one of it.
NothingHangs == \A l \in Leaders : log[l].open # None => log[l].open >= disk.n
=============================================================================
