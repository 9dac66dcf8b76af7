/*
 * How groupflow never loses a task and never runs two of a group at once: its protocol, as a model that is searched.
 *
 * Two daemons, two groups, three messages: 1 and 3 are of group a, 2 is of group b. One step (`d_step`) is one Lua
 * script, one act of RabbitMQ, or one thing that a daemon does in its memory. Steps come in any order, so a call that
 * is late, or a process that stands still, is a step that comes later. FAULTS things go wrong in one history at most,
 * each of these once: intake stops, a daemon stops (and may never come back), a lease is lost (a daemon stands still,
 * or is cut off), Redis fails over to a replica that lacks the last writes, a handler fails, a call or an answer is late.
 *
 * enqueue     Intake (here a daemon of its own) makes a message a task, then acks it. RabbitMQ gives again what is not acked.
 * claim       A daemon gets the oldest ready group: its lock, and a window of its oldest tasks, which leave the lane for
 *             the daemon's checkpoint, each under a fence of its own.
 * run         A handler guards its writes: `... WHERE fence < :fence`. In a window, the next task starts once the one
 *             before it has ended well in this process.
 * settle      By id. The claim continues with the lane's next tasks, or the lock goes and the group is placed.
 * takeover    What is in the checkpoint of a daemon whose lease is over, or of an earlier process of the same name, goes
 *             back to its lane, and the lock goes.
 * generation  A server that was promoted may lack the last writes. A daemon whose checkpoint there is what it holds goes
 *             on; any other cancels what it runs and opens a new session.
 *
 * Left out: partitions, plain tasks, delays, limits, and how a daemon under a new name becomes known (docs/adr/0045).
 * Fences rise by group here; the product has one counter for all.
 *
 * The rules. `make model` searches all histories with all rules, then takes out one rule after another (-DWITHOUT=...):
 * each time the condition that stands beside the rule must break.
 */
#define ACK_AFTER_ENQUEUE 1        /* S2: a message is acked only once Redis has its task */
#define ACK_AFTER_REPLICA 2        /* S11: a message is acked only once the replica has its task */
#define DEDUP 3                    /* S6: a message whose id Redis knows makes no second task */
#define CHECKPOINT_WITH_CLAIM 4    /* S7: the script that takes tasks out of a lane writes the checkpoint */
#define GIVEN_AGAIN 5              /* S1: a claim whose answer was lost is given again */
#define GIVEN_ANEW 6               /* S3: a claim of an earlier server that its daemon does not hold goes back, for a new fence */
#define HELD 7                     /* S1: a settle counts only while the task is in the checkpoint, so once */
#define FENCE 8                    /* S3: a settle counts only under the fence of the checkpoint; the daemon's name is not enough */
#define IN_ORDER 9                 /* S4: a settle counts only once the tasks before it in its window are settled */
#define LEASE 10                   /* S4: a settle counts only while the lease lasts (the code is milder: until another daemon has taken over), and so does a session on a new server */
#define REFUSED_CHANGES_NOTHING 11 /* S4: a settle that is refused frees no lock */
#define PLACE 12                   /* S8: the script that frees a group makes it ready */
#define OLDEST_FIRST 13            /* L3: a claim continues only while no group with an older task waits */
#define FAILURE_FIRST 14           /* S4: a failed task is settled before its group goes on */
#define GUARDED_WRITE 15           /* S4: a handler's writes name its fence */
#define SELF_CANCEL 16             /* S4: a daemon that is cut off cancels what it runs before its lease is over */
#define TAKEOVER 17                /* S1: others take up what a daemon held that never comes back */
#define FENCES_GO_ON 18            /* S3: a promoted server gives fences above all that were ever given */
#define GENERATION_WAIT 19         /* S10: a promoted server gives nothing out until each daemon has come, or a lease has passed */
#define KNOWN 20                   /* S10: a daemon goes on at a promoted server only if that knows all that it holds */
#ifndef WITHOUT
#define WITHOUT 0
#define WINDOW 2                   /* tasks of a claim at most */
#define FAULTS 2
#endif
#define rule(name) (WITHOUT != name)
#define must(holds, broken) if :: holds :: else -> printf(broken); assert(false) fi

#define bit(t) (1 << (t))          /* a set of tasks is a byte: bits 1, 2, 4 are tasks 1, 2, 3 */
#define has(set, t) (((set) >> (t)) & 1)
#define oldest(set) ((set) & 1 -> 0 : ((set) & 2 -> 1 : 2))
#define before(set, t) ((set) & (bit(t) - 1))
#define size(set) (((set) & 1) + (((set) >> 1) & 1) + ((set) >> 2))
#define group(t) ((t) == 1 -> 1 : 0)
#define of(g) ((g) == 1 -> 2 : 5)  /* the tasks of a group */
#define other(d) (1 - (d))

typedef Store {                    /* what is in Redis, and may be lost with a server */
    byte known, lane, ended;       /* tasks that were taken in, that wait, that ended */
    byte ready;                    /* groups, a bit each, that may be claimed */
    bool lock[2];                  /* of a group */
    byte window[2];                /* of a daemon: the tasks in its checkpoint */
    bool session[2];               /* of a daemon: that of its present process counts */
    byte fence[2], given[3]        /* the newest of a group; and of a task */
}
Store redis, copy, nothing;        /* the server that leads; what its replica has while it `lags` */
bool lags, lagged, recovering;     /* it fell behind once; the server that leads gives nothing out yet */
bool came[2] = true, over[2];      /* of a daemon: it has a session with the server that leads; its lease is over */
mtype = { UP, DOWN, GONE };        /* GONE: its machine never comes back */
mtype life[2] = UP;                /* of a daemon; and in its memory: */
byte mine[2], done[2];             /* its tasks; those that ended well and are not settled */
byte running[2], failed[2];        /* the one that runs, and the one that failed, from 1 */
byte told[6];                      /* the fences of its tasks */
bool stalled[2];                   /* it stands still, or did, past the end of its lease */
byte half[2];                      /* without CHECKPOINT_WITH_CLAIM: claimed, and not in its checkpoint yet */
byte acked, hand;                  /* messages that RabbitMQ holds no more; the one that intake has, from 1 */
byte row[2];                       /* the users' database: of a group, the fence of the last write */
byte late_by, late_task, late_fence; /* a settle under way whose sender waits no more; its daemon, from 1 */
byte started, settled;             /* for the conditions: tasks that ever started, while nothing went wrong; and that ended */
byte top[2], latest[2];            /* of a group: the highest fence ever given; that of the newest start */
byte left = FAULTS;                /* how many things may still go wrong; and which of them have: */
bool stop, crash, loss, failover, failure, late;
#define may(fault) (left && !fault)
#define goes_wrong(fault) fault = true; left--; started = 0
byte t, g, i;                      /* within a step only */
#define clear t = 0; g = 0; i = 0

inline name(set) {
    for (i : 0 .. 2) { if :: has(set, i) -> printf(" task %d under fence %d,", i + 1, redis.given[i]) :: else fi }
    printf("\n")
}

/* The one rule that says whether a group may be claimed. */
inline place(g) {
    redis.ready = ((redis.lane & of(g)) && !redis.lock[g] -> redis.ready | bit(g) : redis.ready & ~bit(g))
}

inline audit() {                   /* at the end of each script */
    must(redis.lane + redis.window[0] + redis.window[1] + half[0] + half[1] + redis.ended == redis.known
        && (redis.lane | redis.window[0] | redis.window[1] | half[0] | half[1] | redis.ended) == redis.known,
        "broken: S7: the tasks that wait, run and have ended are not those that were taken in\n");
    must((!(redis.lane & of(0)) || redis.lock[0] || has(redis.ready, 0)) && (!(redis.lane & of(1)) || redis.lock[1]
        || has(redis.ready, 1)), "broken: S8: a group has tasks and no lock, and is not ready\n")
}

inline enqueue() {
    t = hand - 1;
    printf("intake enqueues message %d", hand);
    if
    :: rule(DEDUP) && has(redis.known, t) -> printf(": known already\n")
    :: else ->
        printf("\n");
        must(!has(redis.known, t), "broken: S6: the message becomes a second task\n");
        must(redis.known == bit(t) - 1, "broken: S4: tasks come in another order than messages\n");
        redis.known = redis.known | bit(t); redis.lane = redis.lane | bit(t);
        place(group(t))
    fi;
    audit()
}

/* The oldest tasks of group g go from its lane into d's checkpoint, as far as the window has room. */
inline take(d) {
    do
    :: (redis.lane & of(g)) && size(redis.window[d] | half[d]) < WINDOW ->
        t = oldest(redis.lane & of(g));
        must(redis.window[d] < bit(t), "\nbroken: S4: a window is out of order\n");
        redis.fence[g]++; redis.given[t] = redis.fence[g];
        must(redis.fence[g] > top[g], " a fence that was given before\nbroken: S3: fences do not rise\n");
        top[g] = redis.fence[g];
        redis.lane = redis.lane & ~bit(t);
        if :: rule(CHECKPOINT_WITH_CLAIM) -> redis.window[d] = redis.window[d] | bit(t) :: else -> half[d] = half[d] | bit(t) fi
    :: else -> break
    od
}

inline hear(d) {                   /* d is told what its checkpoint holds */
    mine[d] = redis.window[d];
    for (i : 0 .. 2) { told[3 * d + i] = (has(mine[d], i) -> redis.given[i] : 0) }
}

inline cancel(d) {
    mine[d] = 0; done[d] = 0; running[d] = 0; failed[d] = 0; half[d] = 0; told[3 * d] = 0; told[3 * d + 1] = 0; told[3 * d + 2] = 0
}

inline hand_over(d) {              /* what d's checkpoint holds goes back to its place, and the lock goes */
    for (i : 0 .. 2) { if :: has(redis.window[d], i) -> printf(", task %d goes back", i + 1) :: else fi }
    printf("\n");
    redis.lane = redis.lane | redis.window[d];
    for (i : 0 .. 1) { redis.lock[i] = redis.lock[i] && !(redis.window[d] & of(i)); place(i) }
    redis.window[d] = 0;
    audit()
}

inline arrive(d) { came[d] = true; recovering = recovering && !came[other(d)] }

inline register(d) {
    cancel(d); arrive(d);
    redis.session[d] = true; copy.session[d] = false; over[d] = false; stalled[d] = false;
    hand_over(d); clear
}

#define counts(d, x, f) ((!rule(HELD) || has(redis.window[d], x)) && (!rule(FENCE) || redis.given[x] == f) \
    && (!rule(IN_ORDER) || !before(redis.window[d], x)) && (!rule(LEASE) || !over[d]))
#define older_waits (has(redis.ready, other(g)) && oldest(redis.lane & of(other(g))) < oldest(redis.lane & of(g)))

inline settle(d, x, f, hears) {    /* d's task x is done; `hears`: d is told the answer */
    g = group(x);
    if
    :: counts(d, x, f) ->
        printf(": accepted");
        must(!has(redis.ended, x), "\nbroken: S1: the task has two ends\n");
        must(has(redis.window[d], x) && redis.given[x] == f, "\nbroken: S3: the daemon holds it under a newer fence\n");
        must(!before((redis.lane | redis.window[d]) & of(g), x), "\nbroken: S4: an older task of its group has not ended\n");
        redis.window[d] = redis.window[d] & ~bit(x); redis.ended = redis.ended | bit(x); settled = settled | bit(x);
        if
        :: (redis.lane & of(g)) && !over[d] && !recovering && (!rule(OLDEST_FIRST) || !older_waits) ->
            must(!older_waits, ", and it goes on\nbroken: L3: an older task of the other group waits\n");
            take(d)
        :: else
        fi;
        if
        :: redis.window[d] & of(g) -> printf(", and it goes on with"); name(redis.window[d])
        :: else -> printf("\n"); redis.lock[g] = false; if :: rule(PLACE) -> place(g) :: else fi
        fi
    :: !counts(d, x, f) && has(redis.ended, x) && redis.given[x] == f -> printf(": accepted before\n")
    :: else ->
        printf(": refused\n");
        if
        :: rule(REFUSED_CHANGES_NOTHING)
        :: else -> printf("the lock of group %c goes all the same\n", 97 + g); redis.lock[g] = false; place(g)
        fi;
        if :: hears -> cancel(d) :: else fi
    fi;
    if :: hears && mine[d] -> done[d] = done[d] & ~bit(x); hear(d) :: else fi;
    audit(); clear
}

inline keep(to, from) {
    to.known = from.known; to.lane = from.lane; to.ended = from.ended; to.ready = from.ready;
    for (i : 0 .. 1) {
        to.lock[i] = from.lock[i]; to.window[i] = from.window[i]; to.session[i] = from.session[i]; to.fence[i] = from.fence[i]
    }
    for (i : 0 .. 2) { to.given[i] = from.given[i] }
    clear
}

#define nowhere ((bit(acked) - 1) & ~(redis.known | (hand -> bit(hand - 1) : 0))) /* messages that are acked and lost */
proctype intake() {
end: do
    :: d_step { !hand && acked < 3 -> hand = acked + 1;
        if :: rule(ACK_AFTER_ENQUEUE) -> enqueue() :: else -> printf("intake acks message %d\n", hand); acked++ fi; clear }
    :: d_step { hand > acked && (!rule(ACK_AFTER_REPLICA) || !lags || has(copy.known, hand - 1)) ->
        printf("intake acks message %d\n", hand); acked++; hand = 0 }
    :: d_step { hand && acked == hand -> enqueue(); hand = 0; clear }
    :: d_step { hand && may(stop) -> goes_wrong(stop); hand = 0;
        printf("intake stops and starts again: RabbitMQ gives it again what is not acked\n");
        must(!nowhere, "broken: S2: a message is acked, is not in Redis and does not come again\n"); clear }
    od
}

#define serves (life[d] == UP && !over[d] && came[d] && redis.session[d])
#define may_claim (serves && !mine[d] && !half[d] && !recovering)
#define first (d == 0 || top[0] || top[1] || life[0] != UP) /* the daemons are alike: let daemon 1 claim first */
#define next (mine[d] & ~done[d] & ~(failed[d] -> (rule(FAILURE_FIRST) -> 7 : bit(failed[d] - 1)) : 0))
#define same(t) (!has(mine[d], t) || told[3 * d + t] == redis.given[t])
#define is_known (!rule(KNOWN) || (!(mine[d] & ~redis.window[d]) && same(0) && same(1) && same(2)))
#define is_all (!rule(GIVEN_ANEW) || !(redis.window[d] & ~mine[d]))

proctype daemon(byte d) {
end: do
    /* claim */
    :: d_step { may_claim && redis.window[d] && rule(GIVEN_AGAIN) ->
        printf("daemon %d claims, and is given again", d + 1); name(redis.window[d]); hear(d); clear }
    :: d_step { may_claim && !redis.window[d] && redis.ready && first ->
        g = (redis.ready == 1 || (redis.ready == 3 && has(redis.lane, 0)) -> 0 : 1);
        printf("daemon %d claims group %c with", d + 1, 97 + g);
        redis.lock[g] = true; take(d); place(g); name(redis.window[d] | half[d]); hear(d); audit(); clear }
    :: d_step { half[d] -> redis.window[d] = half[d]; half[d] = 0; printf("daemon %d writes its checkpoint\n", d + 1); hear(d); clear }
    :: d_step { mine[d] && !running[d] && !done[d] && !failed[d] && may(late) -> goes_wrong(late); cancel(d);
        printf("that answer never reaches daemon %d\n", d + 1) }

    /* run */
    :: d_step { life[d] == UP && !running[d] && next ->
        t = oldest(next); g = group(t); running[d] = t + 1;
        printf("daemon %d starts task %d\n", d + 1, t + 1);
        must(!has(started, t), "broken: S5: the task starts a second time, and nothing went wrong\n");
        must(!before(of(g) & ~settled & ~done[d], t), "broken: S4: an older task of its group has not ended well\n");
        if
        :: running[other(d)] && group(running[other(d)] - 1) == g && !stalled[0] && !stalled[1] ->
            must(lagged && !lags, "broken: S4: both daemons run a task of the group\n");
            must(false, "broken: S10: both daemons run a task of the group\n")
        :: else
        fi;
        must(told[3 * d + t] >= latest[g] || stalled[d], "broken: S3: its fence is lower than that of an earlier start in its group\n");
        latest[g] = (told[3 * d + t] > latest[g] -> told[3 * d + t] : latest[g]);
        started = (left == FAULTS -> started | bit(t) : 0);
        clear }
    :: d_step { running[d] ->
        t = running[d] - 1; g = group(t); running[d] = 0; done[d] = done[d] | bit(t);
        printf("daemon %d writes the rows of task %d under fence %d", d + 1, t + 1, told[3 * d + t]);
        if
        :: told[3 * d + t] > row[g] || !rule(GUARDED_WRITE) ->
            row[g] = told[3 * d + t]; printf(", and the task ends well\n");
            must((redis.ended & of(g)) < bit(t + 1), "broken: S4: a write has replaced one of a later task, which has ended\n")
        :: else -> printf(": they have a newer one\n")
        fi; clear }
    :: d_step { running[d] && may(failure) -> goes_wrong(failure); failed[d] = running[d]; running[d] = 0;
        printf("daemon %d: task %d fails\n", d + 1, failed[d]) }

    /* settle */
    :: d_step { life[d] == UP && done[d] ->
        printf("daemon %d settles task %d under fence %d", d + 1, oldest(done[d]) + 1, told[3 * d + oldest(done[d])]);
        settle(d, oldest(done[d]), told[3 * d + oldest(done[d])], true) }
    :: d_step { life[d] == UP && done[d] && may(late) -> goes_wrong(late);
        late_by = d + 1; late_task = oldest(done[d]); late_fence = told[3 * d + late_task];
        printf("daemon %d settles task %d under fence %d, and that is long on its way\n", d + 1, late_task + 1, late_fence) }
    :: d_step { life[d] == UP && failed[d] && !done[d] -> t = failed[d] - 1;
        printf("daemon %d hands task %d, which failed, back under fence %d", d + 1, t + 1, told[3 * d + t]);
        if :: counts(d, t, told[3 * d + t]) -> printf(": accepted"); hand_over(d) :: else -> printf(": refused\n") fi;
        cancel(d); clear }

    /* lease, takeover, generation */
    :: d_step { life[d] == UP && came[d] && (over[d] || !redis.session[d]) ->
        printf("daemon %d finds its lease over: it cancels what it runs and opens a new session", d + 1); register(d) }
    :: d_step { life[d] == UP && !came[d] && redis.session[d] && (!over[d] || !rule(LEASE)) && is_known && is_all ->
        printf("daemon %d comes to the new server, which knows what it holds\n", d + 1); arrive(d) }
    :: d_step { life[d] == UP && !came[d] ->
        printf("daemon %d comes to the new server, cancels what it runs and opens a new session", d + 1); register(d) }
    :: d_step { life[d] == DOWN -> life[d] = UP; printf("daemon %d starts again under its name", d + 1); register(d) }
    :: d_step { serves && !recovering && (over[other(d)] || life[other(d)] != UP) && redis.window[other(d)] && rule(TAKEOVER) ->
        printf("the lease of daemon %d is over, and daemon %d takes over", other(d) + 1, d + 1);
        redis.session[other(d)] = false; hand_over(other(d)); clear }

    /* what goes wrong with a daemon */
    :: d_step { life[d] == UP && may(crash) -> goes_wrong(crash); life[d] = DOWN; printf("daemon %d stops\n", d + 1);
        stalled[d] = false; over[d] = false; redis.session[d] = false; copy.session[d] = false; cancel(d); audit(); clear }
    :: d_step { life[d] == DOWN -> life[d] = GONE; printf("the machine of daemon %d never comes back\n", d + 1) }
    :: d_step { serves && mine[d] && may(loss) -> goes_wrong(loss); over[d] = true; stalled[d] = true;
        printf("daemon %d stands still until its lease is over\n", d + 1) }
    :: d_step { serves && mine[d] && may(loss) -> goes_wrong(loss); over[d] = true;
        printf("daemon %d is cut off until its lease is over", d + 1);
        if :: rule(SELF_CANCEL) -> printf(", and cancels what it runs\n"); cancel(d) :: else -> printf("\n") fi; clear }
    od
}

proctype server() {
end: do
    :: d_step { !lagged && may(failover) -> lagged = true; lags = true; printf("the replica of Redis falls behind\n"); keep(copy, redis) }
    :: d_step { lags -> lags = false; failover = true; printf("the replica has all again\n"); keep(copy, nothing) }
    :: d_step { lags && may(failover) -> goes_wrong(failover); lags = false; recovering = rule(GENERATION_WAIT);
        printf("Redis fails, and its replica is promoted, which lacks all since then\n");
        for (g : 0 .. 1) { came[g] = false; copy.fence[g] = (rule(FENCES_GO_ON) -> redis.fence[g] : copy.fence[g]) }
        keep(redis, copy); keep(copy, nothing);
        late_by = 0; late_task = 0; late_fence = 0; hand = (rule(ACK_AFTER_ENQUEUE) -> 0 : hand);
        must(!nowhere, "broken: S11: a message was acked, and the promoted server lacks it\n");
        audit(); clear }
    :: d_step { recovering -> recovering = false; printf("a lease passes on the new server\n");
        for (g : 0 .. 1) {
            over[g] = over[g] || !came[g];
            if :: !came[g] && !stalled[g] && rule(SELF_CANCEL) -> cancel(g) :: else fi
        } clear }
    :: d_step { late_by ->
        printf("the late settle of task %d under fence %d by daemon %d arrives", late_task + 1, late_fence, late_by);
        settle(late_by - 1, late_task, late_fence, false); late_by = 0; late_task = 0; late_fence = 0 }
    :: timeout -> must(redis.ended == 7, "broken: S1: nothing more happens, and not all tasks have ended\n"); break
    od
}

init { atomic { redis.session[0] = true; redis.session[1] = true; run intake(); run daemon(0); run daemon(1); run server() } }
