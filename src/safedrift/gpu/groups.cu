// A run is played by a group of LANES lanes that share its state.
//
// A pair (h, s, a) has the number (h*A + a)*S + s, so that neighbouring lanes touch neighbouring
// numbers. What the window has not seen costs next to nothing: the successors of a pair are listed as
// they are first observed, and the pairs of a step are in the order of how many they have. So the
// lanes of a warp walk through lists of about the same length, and pairs without visits are last.
//
// Where a group is larger than a warp, two more warps stand beside it: one averages over the actions of
// each state, and one acts.

constexpr bool AHEAD = !BESIDE && H * S <= 4 * LANES;  // choose in all (h, s) at once, and walk afterwards

// An observed successor: its number in the lowest NEXT_BITS, and above them how often it was observed.
constexpr SLOT ONCE = (SLOT)((SLOT)1 << NEXT_BITS);

// ---------------------------------------------------------------- the state of a run

struct State {
    // hot: looked up at random
    double *v, *x, *pi;                             // (2, S, C) of two steps, (A, S, C) of one, (H, A, S)
    double *u, *mu, *dual, *last_b, *signals;       // (DRAWS,), (K,), (K,), (K,), (1+K, H)
    u64 *generator, *increment;                     // (DRAWS, 2), (2, 2)
    i64 *window;
    int *s, *a, *choice;                            // (H,), (H,), (H, S) action + 2^16 next state
    SLOT *slots;                                    // (H-1, HOT_SLOTS, A, S) observed successors
    COUNT *visits;                                  // (H, A, S)
    PAIR *order, *degree, *above;                   // (H, A S) pairs, (H, A, S) successors, (H, S) pairs with more
    unsigned char *seen;                            // (H, S)
    // cold: looked up a few times in an episode
    double *sums, *logit, *step;                    // (H, A, S, 1+K), (H, A-1, S), (H, A-1, S)
    int *low;                                       // (H, A-1, S) upper halves
    SLOT *more;                                     // (H-1, A, S, S - HOT_SLOTS) successors that are not in `slots`
    PAIR *place;                                    // (H, A, S) in `order`
};

#define WHOLE(bytes) (((bytes) + 7) / 8 * 8)
constexpr int LOGITS = H * (A - 1) * S;
constexpr i64 DOUBLES = C * (2 * S + STEP) + PAIRS + DRAWS + 3 * K + SIGNALS;
constexpr i64 WORDS = 2 * DRAWS + 4 + 1;
constexpr i64 INTEGER_BYTES = WHOLE(4 * (2 * H + (AHEAD ? H * S : 0)));
constexpr i64 SLOT_BYTES = WHOLE((i64)sizeof(SLOT) * (H - 1) * HOT_SLOTS * STEP);
constexpr i64 MORE_BYTES = WHOLE((i64)sizeof(SLOT) * (H - 1) * (S - HOT_SLOTS) * STEP);
constexpr i64 VISIT_BYTES = WHOLE((i64)sizeof(COUNT) * PAIRS);
constexpr i64 PAIR_BYTES = WHOLE((i64)sizeof(PAIR) * PAIRS), ABOVE_BYTES = WHOLE((i64)sizeof(PAIR) * H * S);
constexpr i64 HOT_BYTES = (8 * (DOUBLES + WORDS) + INTEGER_BYTES + SLOT_BYTES + VISIT_BYTES + 2 * PAIR_BYTES + ABOVE_BYTES + H * S + 15) / 16 * 16;
constexpr i64 COLD_BYTES = (8 * (1 + K) * PAIRS + 16 * LOGITS + WHOLE(4 * LOGITS) + MORE_BYTES + PAIR_BYTES + 15) / 16 * 16;
constexpr i64 STATE_BYTES = HOT_BYTES + COLD_BYTES;

DEVICE State state_at(char *hot, char *cold) {
    State x;
    double *d = (double *)hot;
    x.v = d; d += 2 * S * C;
    x.x = d; d += STEP * C;
    x.pi = d; d += PAIRS;
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
    char *b = (char *)x.s + INTEGER_BYTES;
    x.slots = (SLOT *)b; b += SLOT_BYTES;
    x.visits = (COUNT *)b; b += VISIT_BYTES;
    x.order = (PAIR *)b; b += PAIR_BYTES;
    x.degree = (PAIR *)b; b += PAIR_BYTES;
    x.above = (PAIR *)b; b += ABOVE_BYTES;
    x.seen = (unsigned char *)b;
    d = (double *)cold;
    x.sums = d; d += (1 + K) * PAIRS;
    x.logit = d; d += LOGITS;
    x.step = d; d += LOGITS;
    b = (char *)d;
    x.low = (int *)b; b += WHOLE(4 * LOGITS);
    x.more = (SLOT *)b; b += MORE_BYTES;
    x.place = (PAIR *)b;
    return x;
}

// Successors of pair i of step h: the first ones, STEP apart, and the others.
DEVICE SLOT *first_slots(const State &x, int h, int i) { return x.slots + h * HOT_SLOTS * STEP + i; }
DEVICE SLOT *more_slots(const State &x, int h, int i) { return x.more + ((i64)h * STEP + i) * (S - HOT_SLOTS); }

// ---------------------------------------------------------------- acting

constexpr int MANY = 1 << 30;

// How many of n numbers, which do not decrease, are not above u after they are multiplied by `share`.
// A warp that acts compares the 32 that halving leaves, each in a lane.
DEVICE int passed(const double *numbers, int n, int most, double u, double share, int lane) {
    int low = 0, high = n;
    while (most > 32 && high - low > 32) {
        const int middle = (low + high) / 2;
        if (u < numbers[middle] * share) high = middle;
        else low = middle + 1;
    }
#ifdef __CUDACC__
    if (BESIDE) {
        const int i = low + lane % 32;
        return low + __popc(__ballot_sync(0xffffffff, i < high && u >= numbers[i] * share));
    }
#endif
    int place = low;
    for (int i = low; i < high; i++) place += u >= numbers[i] * share;
    return place;
}

DEVICE int first_state(const Task &task, double u, int lane) {
    return task.initial_states[passed(task.initial_cumulative, (int)task.starts - 1, MANY, u, 1.0, lane)];
}

DEVICE int next_state(const Task &task, i64 m, int h, int s, int a, double u, int lane) {
    double share;
    const int scenario = scenario_of(task.scenario_P + m * J_P, task.weight_P + m * J_P, u, share);
    const int row = (h * S + s) * A + a;
    const i64 first = DENSE ? row * S : task.offsets[row];
    const int last = (int)(DENSE ? S : task.offsets[row + 1] - first) - 1;
    const double *cumulative = task.cumulative + scenario * task.entries + first;
    const int place = passed(cumulative, last, DENSE ? S : MANY, u, share, lane);
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
DEVICE int choose(const Task &task, i64 m, const State &x, int h, int s, int lane) {
    const int a = pick(x, h, s, x.u[h]);
    return h + 1 < H ? a | next_state(task, m, h, s, a, x.u[H + h + 1], lane) << 16 : a;
}

// ---------------------------------------------------------------- Algorithm 3: evaluation

// Add up V of n observed successors: Σ n (V - V_ref) and Σ n (V - V_ref)².
template <int APART>
DEVICE void add_successors(const SLOT *slot, int n, const double *ahead, const double *from, double *total, double *square) {
    for (; n > 0; n--, slot += APART) {
        const double times = (double)(unsigned)(*slot >> NEXT_BITS);
        double v[C];
        load<C>(v, ahead + (int)(*slot & (ONCE - 1)) * C);
        for (int c = 0; c < C; c++) {
            const double off = v[c] - from[c];
            if (BERNSTEIN && c <= K) square[c] = FMA(times * off, off, square[c]);
            total[c] = FMA(times, off, total[c]);
        }
    }
}

// Sums over the observed successors of a pair: Σ n V, and the root of Σ n (V - mean)² of the
// optimistic ones.
DEVICE void look_ahead(const State &x, int h, int i, double n, double inverse, double *total, double *deviation) {
    const double *ahead = x.v + ((h + 1) & 1) * S * C;
    // One pass: V is compared with that of an observed successor, whose share of the visits is at
    // least 1/n, so that Σ n (V - V_ref)² is at most 1 + n times what is left of it.
    const int degree = x.degree[h * STEP + i];
    const SLOT *first = first_slots(x, h, i), *more = more_slots(x, h, i);
    double from[C], square[1 + K];
    load<C>(from, ahead + (int)(*first & (ONCE - 1)) * C);
    if (degree > 1) {
        for (int c = 0; c <= K; c++) square[c] = 0.0;
        if (degree > HOT_SLOTS) PREFETCH(more);
        add_successors<STEP>(first + STEP, (degree < HOT_SLOTS ? degree : HOT_SLOTS) - 1, ahead, from, total, square);
        if (degree > HOT_SLOTS) add_successors<1>(more, degree - HOT_SLOTS, ahead, from, total, square);
        for (int c = 0; BERNSTEIN && c <= K; c++) {  // what rounding leaves of nothing may be below 0
            const double rest = FMA(-total[c] * inverse, total[c], square[c]);
            deviation[c] = rest > 1e-30 ? root_of(rest) : 0.0;
        }
    }
    for (int c = 0; c < C; c++) total[c] = FMA(n, from[c], total[c]);
}

// Estimates of all channels at one pair of step h: Alg. 3, lines 3 to 8.
DEVICE void estimate(const State &x, int h, int i, const double *lv, const Setting &own) {
    const int p = h * STEP + i;
    const double most = (double)(H - h);
    const COUNT visits = x.visits[p];
    double sums[1 + K], total[C], deviation[1 + K], found[C];
    if (BERNSTEIN && visits == 0) {
        for (int c = 0; c < C; c++) found[c] = most;
    } else {
        load<1 + K>(sums, x.sums + p * (1 + K));
        const Count n = count_of(h, visits, own);
        for (int c = 0; c < C; c++) total[c] = 0.0;
        for (int c = 0; c <= K; c++) deviation[c] = 0.0;
        if (h + 1 < H && visits > 0) look_ahead(x, h, i, (double)visits, n.inverse, total, deviation);
        estimates(h, visits == 0, n, sums, total, deviation, lv, found);
    }
    store<C>(x.x + i * C, found);
}

// V of all channels at (h, s), averages over the policy, and alpha (Q_r + mu Q_g) relative to action 0.
DEVICE void average(const State &x, int h, int s, double alpha) {
    const double *pi = x.pi + h * STEP + s;
    double value[C], reference[C], q[C];
    for (int a = 0; a < A; a++) {
        load<C>(q, x.x + (a * S + s) * C);
        for (int c = 0; c < C; c++) value[c] = FMA(pi[a * S], q[c], a > 0 ? value[c] : 0.0);
        for (int c = 0; a == 0 && c < C; c++) reference[c] = q[c];
        if (a == 0) continue;
        double step = q[0] - reference[0];
        for (int k = 0; k < K; k++) step = FMA(x.mu[k], q[1 + k] - reference[1 + k], step);
        x.step[(h * (A - 1) + a - 1) * S + s] = alpha * step;
    }
    store<C>(x.v + ((h & 1) * S + s) * C, value);
}

// Items for all threads of a run; and for the warp that has the states, where there is one.
#define EACH_THREAD(i, n) for (int i = lane; i < (n); i += BESIDE ? LANES + 2 * WARP : LANES)
#define EACH_BESIDE(i, n) for (int i = BESIDE ? lane - LANES : lane; i < (n); i += BESIDE ? WARP : LANES)

// Estimates at all pairs of step h. Every other time lanes take them in the opposite order: those that had
// the longest lists have the shortest ones next, or none.
DEVICE void estimate_all(const State &x, int lane, int h, const double *lv, const Setting &own) {
#pragma unroll 1
    for (int j = lane, both = 2 * LANES - 1; j < STEP; j = both - j, both += 2 * LANES)
        estimate(x, h, x.order[h * STEP + j], lv, own);
}

// All steps back: estimates, and averages of these.
DEVICE void evaluate_policy(const State &x, int lane, const double *lv, const Setting &own) {
    for (int h = H - 1; h >= 0; h--) {
        if (lane < LANES) estimate_all(x, lane, h, lv, own);
        EVALUATED;
        if (!BESIDE || lane >= LANES) EACH_BESIDE(s, S) average(x, h, s, own.alpha);
        EVALUATED;
    }
}

// log pi_{m+1} = log pi_m + step, and pi from it, at one (h, s); without visits in the window there is no step.
DEVICE void improve(const State &x, int i) {
    if (!x.seen[i]) return;
    const int h = i / S, s = i % S, first = h * (A - 1) * S + s;
    double step[A], high[A], pi[A];
    int low[A];
    for (int a = 1; a < A; a++) {
        step[a] = x.step[first + (a - 1) * S];
        high[a] = x.logit[first + (a - 1) * S];
        low[a] = x.low[first + (a - 1) * S];
    }
    for (int a = 1; a < A; a++) mirror_step(step[a], high[a], low[a]);
    softmax(high, low, pi);
    for (int a = 0; a < A; a++) x.pi[h * STEP + a * S + s] = pi[a];
    for (int a = 1; a < A; a++) {
        x.logit[first + (a - 1) * S] = high[a];
        x.low[first + (a - 1) * S] = low[a];
    }
}

// ---------------------------------------------------------------- Algorithm 1

// A new window forgets data, a restart the policy.
DEVICE void forget(const State &x, int lane, bool opens, bool restarts) {
    if (opens) {  // Alg. 1, line 3: no data yet
        EACH(p, PAIRS) {
            x.visits[p] = 0;
            for (int c = 0; c <= K; c++) x.sums[p * (1 + K) + c] = 0.0;
            x.degree[p] = 0;
            x.order[p] = x.place[p] = (PAIR)(p % STEP);
        }
        EACH(i, H * S) x.seen[i] = x.above[i] = 0;
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
DEVICE void walk(const Task &task, const State &x, i64 m, int lane) {
    int s = first_state(task, x.u[H], lane);
    for (int h = 0; h < H; h++) {
        const int both = AHEAD ? x.choice[h * S + s] : choose(task, m, x, h, s, lane);
        x.s[h] = s;
        x.a[h] = both & 0xffff;
        s = both >> 16;
    }
}

// Estimated value at the start in channel c.
DEVICE double value_at_start(const Task &task, const State &x, int c) {
    double value = 0.0;
    for (int s = 0; s < S; s++) value += task.initial_of_state[s] * x.v[s * C + c];
    return value;
}

// A pair of step h has one more successor: it changes places with the first pair that has as many.
DEVICE void move_up(const State &x, int h, int i) {
    PAIR *order = x.order + h * STEP, *place = x.place + h * STEP;
    const PAIR old = place[i], now = x.above[h * S + x.degree[h * STEP + i]]++, other = order[now];
    x.degree[h * STEP + i] += 1;
    order[old] = other;
    order[now] = (PAIR)i;
    place[other] = old;
    place[i] = now;
}

// Where the successor `next` is among n of them, or n.
template <int APART> DEVICE int place_of(const SLOT *slots, int n, int next) {
    int j = 0;
    while (j < n && (int)(slots[j * APART] & (ONCE - 1)) != next) j++;
    return j;
}

// Pair i of step h was followed by a state; behind the last step it is enough that it was visited.
DEVICE void count_successor(const State &x, int h, int i, int next) {
    const int degree = x.degree[h * STEP + i];
    bool found = h + 1 == H && degree > 0;
    if (h + 1 < H) {
        SLOT *slot = first_slots(x, h, i);
        int j = place_of<STEP>(slot, degree < HOT_SLOTS ? degree : HOT_SLOTS, next);
        slot += j * STEP;
        if (j == HOT_SLOTS && S > HOT_SLOTS) {
            slot = more_slots(x, h, i);
            j += place_of<1>(slot, degree - HOT_SLOTS, next);
            slot += j - HOT_SLOTS;
        }
        found = j < degree;
        *slot = (SLOT)(found ? *slot + ONCE : ONCE + next);
    }
    if (!found) move_up(x, h, i);
}

// The episode enters the window: what happened at step h.
DEVICE void count(const State &x, int h) {
    const int s = x.s[h], a = x.a[h], i = a * S + s, p = h * STEP + i;
    x.visits[p] += 1;
    x.seen[h * S + s] = 1;
    for (int c = 0; c <= K; c++) x.sums[p * (1 + K) + c] += x.signals[c * H + h];
    count_successor(x, h, i, h + 1 < H ? x.s[h + 1] : 0);
}

// All episodes of a launch. Acting and evaluating an episode need nothing of each other: beside large
// groups a warp acts, whose lanes have the last numbers.
DEVICE void play_run(const Task &task, i64 run, int lane, const State &x) {
    const Setting own = setting_of(task, task.setting[run]);
    i64 window_age = task.first % own.W, policy_age = task.first % own.L;
    const bool evaluates = lane < LANES, acts = BESIDE ? lane >= LANES + WARP : lane == 0;
    const bool averages = !BESIDE || (!evaluates && !acts);
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
        if (AHEAD) {
            EACH(i, H * S) x.choice[i] = choose(task, m, x, i / S, i % S, lane);
            BARRIER;
        }
        if (acts) walk(task, x, m, lane);
        if (row >= 0 && averages) {
            double *out = task.policies + ((i64)row * task.runs + run) * PAIRS;
            constexpr int WIDE = PAIRS % 2 ? 1 : 2;
            EACH_BESIDE(i, PAIRS / WIDE) store<WIDE>(out + i * WIDE, x.pi + i * WIDE);
        }
        if (!BESIDE || !acts) {  // Alg. 1, line 13 (Alg. 3)
            const i64 window = x.window[0] < own.windows ? x.window[0] : own.windows - 1;
            evaluate_policy(x, lane, own.LV + window * K * H, own);
        }
        BARRIER;
        if (improves) EACH_THREAD(i, H * S) improve(x, i);  // Alg. 1, line 8 of the next episode
        if (evaluates) {
            EACH(j, SIGNALS) {
                const int c = j / H, h = j % H;
                const i64 pair = (i64)e * PAIRS + h * STEP + x.a[h] * S + x.s[h];
                double mean = task.mixed_signals[pair * (1 + K) + c];
                if (NOISY) mean = x.u[2 * H + h * (1 + K) + c] < mean ? 1.0 : 0.0;
                x.signals[j] = mean;
            }
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

constexpr int BLOCK = LANES * RUNS + (BESIDE ? 2 * WARP : 0);  // threads

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
