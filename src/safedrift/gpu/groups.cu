// A run is played by a group of LANES lanes that share its state.
//
// A pair (h, s, a) has the number (h*A + a)*S + s, so that neighbouring lanes touch neighbouring
// numbers. What a state of the window has not seen costs nothing: observed successors are marked.

constexpr int MARKS = (S + 31) / 32;  // words of marks of a pair
#ifdef __CUDACC__
constexpr int GROUP = LANES < 32 ? LANES : 32;  // lanes that wait for each other without others
constexpr bool BESIDE = LANES > 32;
#else
constexpr int GROUP = LANES;
constexpr bool BESIDE = false;
#endif
constexpr int FITTING = GROUP / A < 1 ? 1 : GROUP / A < S ? GROUP / A : S;
constexpr int SHARES = (S + FITTING - 1) / FITTING;  // of the states of a step, for groups
constexpr int SHARE = (S + SHARES - 1) / SHARES;     // states of one
constexpr bool AHEAD = H * S <= 4 * LANES;  // choose in all (h, s) at once, and walk afterwards

// ---------------------------------------------------------------- the state of a run

struct State {
    // hot: looked up at random
    double *pi;                                     // (H, A, S)
    double *x, *v;                                  // (C, A, S), (2, C, S) of two steps
    double *u, *mu, *dual, *last_b, *signals;       // (DRAWS,), (K,), (K,), (K,), (1+K, H)
    u64 *generator, *increment;                     // (DRAWS, 2), (2, 2)
    i64 *window;
    int *s, *a, *choice;                            // (H,), (H,), (H, S) action + 2^16 next state
    unsigned *marks;                                // (H-1, MARKS, A, S) observed successors
    COUNT *visits, *moves;                          // (H, A, S), (H-1, S next, A, S)
    unsigned char *seen;                            // (H, S)
    // cold: each number once per episode, neighbours together
    double *logit, *sums;                           // (H, A-1, S), (1+K, H, A, S)
    int *low;                                       // (H, A-1, S) upper halves
};

constexpr i64 DOUBLES = PAIRS + C * (STEP + 2 * S) + DRAWS + 3 * K + SIGNALS;
constexpr i64 WORDS = 2 * DRAWS + 4 + 1;
constexpr i64 INTEGERS = 2 * H + H * S + (H - 1) * MARKS * STEP;
constexpr i64 COUNTS = PAIRS + (i64)(H - 1) * S * STEP;
constexpr i64 HOT_BYTES =
    (8 * (DOUBLES + WORDS) + 4 * INTEGERS + (i64)sizeof(COUNT) * COUNTS + H * S + 15) / 16 * 16;
constexpr int LOGITS = H * (A - 1) * S;
constexpr i64 COLD_BYTES = (8 * (1 + K) * PAIRS + 12 * LOGITS + 15) / 16 * 16;
constexpr i64 STATE_BYTES = HOT_BYTES + COLD_BYTES;

DEVICE State state_at(char *hot, char *cold) {
    State x;
    double *d = (double *)hot;
    x.pi = d; d += PAIRS;
    x.x = d; d += C * STEP;
    x.v = d; d += 2 * C * S;
    x.u = d; d += DRAWS;
    x.mu = d; d += K;
    x.dual = d; d += K;
    x.last_b = d; d += K;
    x.signals = d; d += SIGNALS;
    x.generator = (u64 *)d;
    x.increment = x.generator + 2 * DRAWS;
    x.window = (i64 *)(x.increment + 4);
    x.s = (int *)(x.window + 1);
    x.a = x.s + H;
    x.choice = x.a + H;
    x.marks = (unsigned *)(x.choice + H * S);
    x.visits = (COUNT *)(x.marks + (H - 1) * MARKS * STEP);
    x.moves = x.visits + PAIRS;
    x.seen = (unsigned char *)(x.moves + (i64)(H - 1) * S * STEP);
    d = (double *)cold;
    x.logit = d; d += LOGITS;
    x.sums = d; d += (1 + K) * PAIRS;
    x.low = (int *)d;
    return x;
}

// ---------------------------------------------------------------- acting

DEVICE int next_state(const Task &task, i64 m, int h, int s, int a, double u) {
    double share;
    const int scenario = scenario_of(task.scenario_P + m * J_P, task.weight_P + m * J_P, u, share);
    const double *cumulative = task.cumulative + scenario * task.entries;
    const i64 row = ((i64)h * S + s) * A + a;
    const i64 first = DENSE ? row * S : task.offsets[row];
    int low = 0, high = (int)(DENSE ? S : task.offsets[row + 1] - first) - 1;
    while ((!DENSE || S > 32) && high - low > 32) {
        const int middle = (low + high) / 2;
        if (u < cumulative[first + middle] * share) high = middle;
        else low = middle + 1;
    }
    int place = low;
    for (int e = low; e < high; e++) place += u >= cumulative[first + e] * share;
    return DENSE ? place : (int)task.states[first + place];
}

// Draw an action from pi_h(.|s).
DEVICE int pick(const State &x, int h, int s, double u) {
    const double *pi = x.pi + h * STEP + s;
    double below = 0.0;
    int chosen = 0;
    for (int a = 0; a < A; a++) {  // Alg. 1, line 9
        below += pi[a * S];
        chosen += u >= below;
    }
    if (chosen == A) do chosen--; while (pi[chosen * S] == 0.0);
    return chosen;
}

// What happens at (h, s): the action, and 2^16 times the next state.
DEVICE int choose(const Task &task, i64 m, const State &x, int h, int s) {
    const int a = pick(x, h, s, x.u[h]);
    return h + 1 < H ? a | next_state(task, m, h, s, a, x.u[H + h + 1]) << 16 : a;
}

// ---------------------------------------------------------------- Algorithm 3: evaluation

// Sums over the observed successors of a pair: Σ n V, and the root of Σ n (V - mean)² of the
// optimistic ones.
DEVICE void look_ahead(const State &x, int h, int i, double n, double inverse, double *total, double *deviation) {
    const COUNT *moves = x.moves + (i64)h * S * STEP + i;
    const double *ahead = x.v + ((h + 1) & 1) * C * S;
    // One pass: V is compared with that of an observed successor, whose share of the visits is at
    // least 1/n, so that Σ n (V - V_ref)² is at most 1 + n times what is left of it.
    const unsigned *marks = x.marks + (h * MARKS) * STEP + i;
    double from[C], square[1 + K];
    for (int c = 0; c <= K; c++) square[c] = 0.0;
    bool started = false;
    for (int word = 0; word < MARKS; word++) {
        unsigned left = marks[word * STEP];
        if (left && !started) {
            for (int c = 0; c < C; c++) from[c] = ahead[c * S + word * 32 + LOWEST(left)];
            started = true;
        }
        while (left) {
            const int next = word * 32 + LOWEST(left);
            left &= left - 1;
            const double times = (double)moves[next * STEP];
            for (int c = 0; c < C; c++) {
                const double off = ahead[c * S + next] - from[c], part = times * off;
                total[c] += part;
                if (BERNSTEIN && c <= K) square[c] = FMA(part, off, square[c]);
            }
        }
    }
    for (int c = 0; c < C; c++) {
        if (BERNSTEIN && c <= K) {  // what rounding leaves of nothing may be below 0
            const double rest = FMA(-total[c] * inverse, total[c], square[c]);
            deviation[c] = rest > 1e-30 ? root_of(rest) : 0.0;
        }
        total[c] = FMA(n, from[c], total[c]);
    }
}

// Estimates of all channels at one pair of step h: Alg. 3, lines 3 to 8.
DEVICE void estimate(const State &x, int h, int i, const double *lv, const Setting &own) {
    const int p = h * STEP + i;
    const double most = (double)(H - h);
    const COUNT visits = x.visits[p];
    double *found = x.x + i;
    if (BERNSTEIN && visits == 0) {
        for (int c = 0; c < C; c++) found[c * STEP] = most;
        return;
    }
    const Count n = count_of(h, visits, own);
    double sums[1 + K], total[C], deviation[1 + K], y[C];
    for (int c = 0; c <= K; c++) sums[c] = x.sums[c * PAIRS + p];
    for (int c = 0; c < C; c++) total[c] = 0.0;
    for (int c = 0; c <= K; c++) deviation[c] = 0.0;
    if (h + 1 < H && visits > 0) look_ahead(x, h, i, (double)visits, n.inverse, total, deviation);
    estimates(h, visits == 0, n, sums, total, deviation, lv, y);
    for (int c = 0; c < C; c++) found[c * STEP] = y[c];
}

// V of some channels, from number c on, at (h, s): averages over the policy.
constexpr int BATCH = C % 2 ? 1 : 2;
DEVICE void average(const State &x, int h, int c, int s) {
    const double *pi = x.pi + h * STEP + s, *found = x.x + c * STEP + s;
    double value[BATCH];
    for (int b = 0; b < BATCH; b++) value[b] = 0.0;
    for (int a = 0; a < A; a++)
        for (int b = 0; b < BATCH; b++) value[b] = FMA(pi[a * S], found[b * STEP + a * S], value[b]);
    for (int b = 0; b < BATCH; b++) x.v[((h & 1) * C + c + b) * S + s] = value[b];
}

// log pi_{m+1} = log pi_m + alpha (Q_r + mu Q_g) at one pair.
DEVICE void improve(const State &x, int h, int a, int s, double alpha) {
    if (!x.seen[h * S + s]) return;
    const int p = (h * (A - 1) + a - 1) * S + s, i = a * S + s;
    double step = (x.x[i] - x.x[s]) + x.mu[0] * (x.x[STEP + i] - x.x[STEP + s]);
    for (int k = 1; k < K; k++)
        step += x.mu[k] * (x.x[(1 + k) * STEP + i] - x.x[(1 + k) * STEP + s]);
    mirror_step(alpha * step, x.logit[p], x.low[p]);
}

// Ask for what a step needs of main memory.
DEVICE void prefetch(const State &x, int h, int a, int s) {
    for (int c = 0; c <= K; c++) PREFETCH(x.sums + c * PAIRS + h * STEP + a * S + s);
    if (a > 0) {
        PREFETCH(x.logit + (h * (A - 1) + a - 1) * S + s);
        PREFETCH(x.low + (h * (A - 1) + a - 1) * S + s);
    }
}

// Items of a share of the states, for the lanes of a group. Where they are no more than the lanes,
// a lane too many does the last one again, which writes the same numbers.
#define OF_SHARE(j, n) \
    for (int j = ONCE(n) && lane % GROUP >= (n) ? (n) - 1 : lane % GROUP; j < (n); j += ONCE(n) ? (n) : GROUP)
#define ONCE(n) ((n) <= GROUP)

// One step back: estimates, their averages, and the step towards the next policy. A group of lanes
// has some states with all their actions, and needs V of all states only for the step before.
DEVICE void step_back(const State &x, int lane, int h, const double *lv, const Setting &own, bool improves) {
    for (int share = lane / GROUP; share < SHARES; share += LANES / GROUP) {
        const int first = SHARES > 1 ? share * SHARE : 0;
        OF_SHARE(j, SHARE * A) {
            const int s = first + j % SHARE, a = j / SHARE;
            if (SHARE * SHARES > S && s >= S) continue;
            if (SHARED_STATE < 2 && h > 0) prefetch(x, h - 1, a, s);
            estimate(x, h, a * S + s, lv, own);
        }
        GROUP_BARRIER;
        OF_SHARE(j, SHARE * (C / BATCH)) {
            const int s = first + j % SHARE;
            if (SHARE * SHARES > S && s >= S) continue;
            average(x, h, j / SHARE * BATCH, s);
        }
        if (improves) {
            for (int j = lane % GROUP; j < SHARE * (A - 1); j += GROUP) {
                const int s = first + j % SHARE;
                if (SHARE * SHARES > S && s >= S) continue;
                improve(x, h, 1 + j / SHARE, s, own.alpha);
            }
        }
    }
}

// pi from its logarithms at one (h, s); where the window has no visits it has not changed.
DEVICE void normalise(const State &x, int i) {
    if (!x.seen[i]) return;
    const int h = i / S, s = i % S, first = h * (A - 1) * S + s;
    double high[A], pi[A];
    int low[A];
    for (int a = 1; a < A; a++) {
        high[a] = x.logit[first + (a - 1) * S];
        low[a] = x.low[first + (a - 1) * S];
    }
    softmax(high, low, pi);
    for (int a = 0; a < A; a++) x.pi[h * STEP + a * S + s] = pi[a];
}

// ---------------------------------------------------------------- Algorithm 1

// A new window forgets data, a restart the policy.
DEVICE void forget(const State &x, int lane, bool opens, bool restarts) {
    if (opens) {  // Alg. 1, line 3: no data yet
        EACH(p, PAIRS) {
            x.visits[p] = 0;
            for (int c = 0; c <= K; c++) x.sums[c * PAIRS + p] = 0.0;
        }
        EACH(i, H * S) x.seen[i] = 0;
        EACH(j, (H - 1) * S * STEP) x.moves[j] = 0;
        EACH(j, (H - 1) * MARKS * STEP) x.marks[j] = 0;
        if (lane == 0) x.window[0] += 1;
    }
    if (restarts) {  // Alg. 1, lines 4 and 5
        EACH(p, PAIRS) x.pi[p] = 1.0 / A;
        EACH(p, LOGITS) {
            x.logit[p] = 0.0;
            x.low[p] = 0;
        }
    }
}

// Walk through an episode, along what was chosen ahead or choosing on the way.
DEVICE void walk(const Task &task, const State &x, i64 m, bool ahead) {
    int s = first_state(task, x.u[H]);
    for (int h = 0; h < H; h++) {
        const int both = ahead ? x.choice[h * S + s] : choose(task, m, x, h, s);
        x.s[h] = s;
        x.a[h] = both & 0xffff;
        s = both >> 16;
    }
}

// Estimated value at the start in channel c.
DEVICE double value_at_start(const Task &task, const State &x, int c) {
    double value = 0.0;
    for (int s = 0; s < S; s++) value += task.initial_of_state[s] * x.v[c * S + s];
    return value;
}

// The episode enters the window: what happened at step h.
DEVICE void count(const State &x, int h) {
    const int s = x.s[h], a = x.a[h], i = a * S + s, p = h * STEP + i;
    x.visits[p] += 1;
    x.seen[h * S + s] = 1;
    for (int c = 0; c <= K; c++) x.sums[c * PAIRS + p] += x.signals[c * H + h];
    if (h + 1 < H) {
        const int next = x.s[h + 1];
        x.moves[((i64)h * S + next) * STEP + i] += 1;
        x.marks[(h * MARKS + next / 32) * STEP + i] |= 1u << next % 32;
    }
}

// All episodes of a launch. Acting and evaluating an episode need nothing of each other: in large
// layouts a warp of its own acts (its lanes have numbers from LANES on).
DEVICE void play_run(const Task &task, i64 run, int lane, const State &x) {
    const Setting own = setting_of(task, task.setting[run]);
    i64 window_age = task.first % own.W, policy_age = task.first % own.L;
    const bool evaluates = lane < LANES;
    for (int e = 0; e < (int)task.episodes; e++) {  // Alg. 1, line 2
        const i64 m = task.first + e;
        const int row = task.row[e];
        const bool opens = window_age == 0, restarts = policy_age == 0;
        window_age = window_age + 1 == own.W ? 0 : window_age + 1;
        policy_age = policy_age + 1 == own.L ? 0 : policy_age + 1;
        const bool improves = policy_age != 0;  // else the next policy is uniform
        if (evaluates) {
            forget(x, lane, opens, restarts);
            EACH(j, DRAWS) {
                const int stream = j < H ? 0 : 1;
                x.u[j] = draw(x.generator + 2 * j, x.increment + 2 * stream, stream);
            }
            EACH(k, K) {
                const double b = task.thresholds[m * K + k];
                x.mu[k] = dual_step(x.mu[k], own.lagged ? x.last_b[k] : b, x.dual[k], own);
                x.last_b[k] = b;
            }
        }
        BARRIER;
        if (!BESIDE && AHEAD) {
            EACH(i, H * S) x.choice[i] = choose(task, m, x, i / S, i % S);
            BARRIER;
        }
        if (lane == (BESIDE ? LANES : 0)) walk(task, x, m, !BESIDE && AHEAD);
        if (evaluates) {  // Alg. 1, line 13 (Alg. 3), and line 8 of the next episode
            if (row >= 0) {
                double *out = task.policies + ((i64)row * task.runs + run) * PAIRS;
                EACH(p, PAIRS) out[p] = x.pi[p];
            }
            const i64 window = x.window[0] < own.windows ? x.window[0] : own.windows - 1;
            const double *lv = own.LV + window * K * H;
            for (int h = H - 1; h >= 0; h--) {
                step_back(x, lane, h, lv, own, improves);
                EVALUATED;
            }
        }
        BARRIER;
        if (evaluates) {
            EACH(j, SIGNALS) {
                const int c = j / H, h = j % H;
                const i64 pair = (i64)e * PAIRS + h * STEP + x.a[h] * S + x.s[h];
                double mean = task.mixed_signals[pair * (1 + K) + c];
                if (NOISY) mean = x.u[2 * H + h * (1 + K) + c] < mean ? 1.0 : 0.0;
                x.signals[j] = mean;
            }
            if (improves) EACH(i, H * S) normalise(x, i);
            if (own.dual_signal != OBSERVED || task.log_v) {
                EACH(c, C) {  // Alg. 3, line 10
                    const double value = value_at_start(task, x, c);
                    const int used = own.dual_signal == PLAIN ? 1 + K : 1;
                    if (own.dual_signal != OBSERVED && c >= used && c < used + K) x.dual[c - used] = value;
                    if (task.log_v) task.log_v[(run * task.episodes + e) * C + c] = value;
                }
            }
        }
        BARRIER;
        if (evaluates) {
            if (own.dual_signal == OBSERVED) {
                EACH(k, K) {
                    double total = 0.0;
                    for (int h = 0; h < H; h++) total += x.signals[(1 + k) * H + h];
                    x.dual[k] = total;
                }
            }
            EACH(h, H) {
                count(x, h);
                if (task.log_states) {
                    task.log_states[(run * task.episodes + e) * H + h] = x.s[h];
                    task.log_actions[(run * task.episodes + e) * H + h] = x.a[h];
                }
            }
            if (task.log_mu) EACH(k, K) task.log_mu[(run * task.episodes + e) * K + k] = x.mu[k];
        }
        BARRIER;
    }
}

// Before the first episode: zero multipliers, generators at the first number of each kind.
DEVICE void begin_run(const Task &task, i64 run, int lane, const State &x) {
    const u64 *given = task.generators + run * 8;
    EACH(k, K) x.mu[k] = x.dual[k] = x.last_b[k] = 0.0;
    EACH(stream, 2) begin_increment(given + 4 * stream, stream, x.increment + 2 * stream);
    EACH(j, DRAWS) begin_generator(given + (j < H ? 0 : 4), j < H ? j : j - H, x.generator + 2 * j);
    if (lane == 0) x.window[0] = -1;
}

// ---------------------------------------------------------------- entry points

#ifdef __CUDACC__

extern __shared__ u64 shared_memory[];

constexpr int BLOCK = LANES * RUNS + (BESIDE ? 32 : 0);  // threads

extern "C" __global__ void __launch_bounds__(BLOCK, BLOCKS) play(const __grid_constant__ Task task) {
    // Whole groups leave; within a warp they stay together, and play the last run once more.
    i64 run = BESIDE ? blockIdx.x : (i64)blockIdx.x * RUNS + threadIdx.x / LANES;
    if (LANES >= 32 && run >= task.runs) return;
    run = run < task.runs ? run : task.runs - 1;
    const int lane = BESIDE ? threadIdx.x : threadIdx.x % LANES;
    char *own = task.memory + run * STATE_BYTES;
    if (SHARED_STATE == 0) {
        play_run(task, run, lane, state_at(own, own + HOT_BYTES));
        return;
    }
    const int size = (SHARED_STATE == 2 ? STATE_BYTES : HOT_BYTES) / 8;
    u64 *here = shared_memory + (BESIDE ? 0 : threadIdx.x / LANES * size);
    if (lane < LANES)
        for (int i = lane; i < size; i += LANES) here[i] = ((u64 *)own)[i];
    BARRIER;
    char *hot = (char *)here;
    if (SHARED_STATE == 2) play_run(task, run, lane, state_at(hot, hot + HOT_BYTES));
    else play_run(task, run, lane, state_at(hot, own + HOT_BYTES));
    if (lane < LANES)
        for (int i = lane; i < size; i += LANES) ((u64 *)own)[i] = here[i];
}

extern "C" __global__ void begin(const __grid_constant__ Task task) {
    const i64 run = (i64)blockIdx.x * RUNS + threadIdx.x / LANES;
    char *own = task.memory + run * STATE_BYTES;
    if (threadIdx.x < LANES * RUNS && run < task.runs)
        begin_run(task, run, threadIdx.x % LANES, state_at(own, own + HOT_BYTES));
}

#else

static State state_of(const Task *task, i64 run) {
    char *own = task->memory + run * STATE_BYTES;
    return state_at(own, own + HOT_BYTES);
}

static void begin_on_host(const Task *task, i64 run, int lane) { begin_run(*task, run, lane, state_of(task, run)); }
static void play_on_host(const Task *task, i64 run, int lane) { play_run(*task, run, lane, state_of(task, run)); }

#endif
