// ---------------------------------------------------------------- one step through the world

DEVICE int first_state(const Task &task, double u) {
    double below = 0.0;
    for (int i = 0; i < task.starts; i++) {
        below += task.initial[i];
        if (u < below) return task.initial_states[i];
    }
    return task.initial_states[task.starts - 1];
}

DEVICE int next_state(const Task &task, i64 m, int h, int s, int a, double u) {
    // The scenario of u; its uniform is what remains of u, over its weight.
    const double *weight = task.weight_P + m * J_P;
    double rest = u, share = 1.0;
    int scenario = 0;
    bool found = false;
    for (int j = 0; j < J_P; j++) {
        const double w = weight[j];
        if (!found && w > 0.0) {
            scenario = j;
            share = w;
            rest = u;
            found = u < w;
            u -= w;
        }
    }
    const double *cumulative = task.cumulative + task.scenario_P[m * J_P + scenario] * task.entries;
    const i64 row = ((i64)h * S + s) * A + a;
    const i64 first = DENSE ? row * S : task.offsets[row];
    int low = 0, high = (int)(DENSE ? S : task.offsets[row + 1] - first) - 1;
    while ((!DENSE || S > 32) && high - low > 32) {
        const int middle = (low + high) / 2;
        if (rest < cumulative[first + middle] * share) high = middle;
        else low = middle + 1;
    }
    int place = low;
    for (int e = low; e < high; e++) place += rest >= cumulative[first + e] * share;
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

// Sums over the observed successors of a pair: Σ n V, and Σ n (V - mean)² of the optimistic ones.
DEVICE void look_ahead(const State &x, int h, int i, double n, double inverse, double *total, double *square) {
    const COUNT *moves = x.moves + (i64)h * S * STEP + i;
    const double *ahead = x.v + ((h + 1) & 1) * CHANNELS * S;
    if (!LISTED) {
        double times[S];
        for (int next = 0; next < S; next++) times[next] = (double)moves[next * STEP];
        for (int c = 0; c < C; c++)
            for (int next = 0; next < S; next++) total[c] = FMA(times[next], ahead[c * S + next], total[c]);
        if (!BERNSTEIN) return;
        for (int c = 0; c <= K; c++) {
            const double mean = total[c] * inverse;
            for (int next = 0; next < S; next++) {
                const double off = ahead[c * S + next] - mean;
                square[c] = FMA(times[next] * off, off, square[c]);
            }
        }
        return;
    }
    // One pass: V is compared with that of an observed successor, whose share of the visits is at
    // least 1/n, so that Σ n (V - V_ref)² is at most 1 + n times what is left of it.
    const unsigned *marks = x.marks + (h * MARKS) * STEP + i;
    double from[C];
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
        if (BERNSTEIN && c <= K) square[c] = FMA(-total[c] * inverse, total[c], square[c]);
        total[c] = FMA(n, from[c], total[c]);
    }
}

// Bonus of n visits that does not depend on the channel (Bernstein's: see `estimate`).
DEVICE double bonus_of_count(int h, double n, double weight, const Setting &own) {
    double d = n + own.shift;
    if (own.shift == 0.0 && d < 1.0) d = 1.0;
    return own.root[h] * inverse(deviation_of(d)) + own.tail[h] * weight;
}

// Estimates of all channels at one pair of step h: Alg. 3, lines 3 to 8.
DEVICE void estimate(const State &x, int h, int i, const double *lv, const Setting &own) {
    const int p = h * STEP + i;
    const double most = (double)(H - h);
    const COUNT visits = x.visits[p];
    double *found = x.x + i;
    if (LISTED && BERNSTEIN && visits == 0) {
        for (int c = 0; c < C; c++) found[c * STEP] = most;
        return;
    }
    const double n = (double)visits, weight = inverse(n + own.lam);
    const double inverse_n = BERNSTEIN ? inverse(visits > 0 ? n : 1.0) : 0.0;
    double sums[1 + K], total[C], square[1 + K];
    for (int c = 0; c <= K; c++) sums[c] = x.sums[c * PAIRS + p];
    for (int c = 0; c < C; c++) total[c] = 0.0;
    for (int c = 0; c <= K; c++) square[c] = 0.0;
    if (h + 1 < H && (!LISTED || visits > 0)) look_ahead(x, h, i, n, inverse_n, total, square);
    double bonus = BERNSTEIN ? own.lam * weight : bonus_of_count(h, n, weight, own);
    for (int c = 0; c < C; c++) {
        double y = (sums[c <= K ? c : c - K] + total[c]) * weight;
        if (c <= K) {
            double more = bonus;
            if (BERNSTEIN)  // c sqrt(variance/n) + c² (H-h)/n + lam/(n+lam)
                more = FMA(own.scale * FMA(own.scale, most, deviation_of(square[c])), inverse_n, bonus);
            y = y + (HAS_LV && c > 0 ? more + lv[(c - 1) * H + h] : more);
        }
        y = y < most ? y : most;  // and no term is below 0
        if (visits == 0 && (BERNSTEIN || c > K)) y = most;
        found[c * STEP] = y;
    }
}

// The world of a measured episode: what `evaluate_pair` reads.
struct World {
    const double *signals, *P;  // (1+K, H, A, S), (H, S next, A, S)
    bool measured;
};

// Exact Q of reward and utilities at one pair of step h.
DEVICE void evaluate_pair(const State &x, const World &world, int h, int i) {
    const double *signal = world.signals + h * STEP + i, *P = world.P + h * (S * STEP) + i;
    const double *ahead = x.v + (((h + 1) & 1) * CHANNELS + C) * S;
    double q[1 + K];
    for (int c = 0; c <= K; c++) q[c] = signal[c * PAIRS];
    if (h + 1 < H)
        for (int next = 0; next < S; next++)
            for (int c = 0; c <= K; c++) q[c] = FMA(P[next * STEP], ahead[c * S + next], q[c]);
    for (int c = 0; c <= K; c++) x.x[(C + c) * STEP + i] = q[c];
}

// V of some channels, from number c on, at (h, s): averages over the policy.
constexpr int BATCH = CHANNELS % 2 ? 1 : 2;
DEVICE void average(const State &x, int h, int c, int s) {
    const double *pi = x.pi + h * STEP + s, *found = x.x + c * STEP + s;
    double value[BATCH];
    for (int b = 0; b < BATCH; b++) value[b] = 0.0;
    for (int a = 0; a < A; a++)
        for (int b = 0; b < BATCH; b++) value[b] = FMA(pi[a * S], found[b * STEP + a * S], value[b]);
    for (int b = 0; b < BATCH; b++) x.v[((h & 1) * CHANNELS + c + b) * S + s] = value[b];
}

// log pi_{m+1} = log pi_m + alpha (Q_r + mu Q_g) at one pair, relative to action 0, in two floats.
DEVICE void improve(const State &x, int h, int a, int s, double alpha) {
    if (LISTED && !x.seen[h * S + s]) return;
    const int p = (h * (A - 1) + a - 1) * S + s, i = a * S + s;
    double step = (x.x[i] - x.x[s]) + x.mu[0] * (x.x[STEP + i] - x.x[STEP + s]);
    for (int k = 1; k < K; k++)
        step += x.mu[k] * (x.x[(1 + k) * STEP + i] - x.x[(1 + k) * STEP + s]);
    double old = x.logit[p];
    double add = alpha * step + from_upper_half(x.low[p]);
    double sum = old + add;
    double back = sum - old;
    x.low[p] = upper_half((old - (sum - back)) + (add - back));
    x.logit[p] = sum;
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
DEVICE void step_back(const State &x, const World &world, int lane, int h, const double *lv, const Setting &own, bool improves) {
    for (int share = lane / GROUP; share < SHARES; share += LANES / GROUP) {
        const int first = SHARES > 1 ? share * SHARE : 0;
        OF_SHARE(j, SHARE * A) {
            const int s = first + j % SHARE, a = j / SHARE;
            if (SHARE * SHARES > S && s >= S) continue;
            if (SHARED_STATE < 2 && h > 0) prefetch(x, h - 1, a, s);
            estimate(x, h, a * S + s, lv, own);
            if (FUSED && world.measured) evaluate_pair(x, world, h, a * S + s);
        }
        GROUP_BARRIER;
        OF_SHARE(j, SHARE * (CHANNELS / BATCH)) {
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
    double top = 0.0, total = 0.0, y[A];
    for (int a = 1; a < A; a++) {
        y[a] = x.logit[first + (a - 1) * S];
        top = top < y[a] ? y[a] : top;
    }
    for (int a = 0; a < A; a++) {
        y[a] = exponential(a > 0 ? (y[a] - top) + from_upper_half(x.low[first + (a - 1) * S]) : -top);
        total = total + y[a];
    }
    total = inverse(total);
    for (int a = 0; a < A; a++) x.pi[h * STEP + a * S + s] = y[a] * total;
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
        if (LISTED) EACH(j, (H - 1) * MARKS * STEP) x.marks[j] = 0;
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

// The dual step of constraint k: Alg. 1, line 12.
DEVICE void dual_step(const State &x, int k, double now, const Setting &own) {
    double mu = x.mu[k];
    const double b = own.lagged ? x.last_b[k] : now;
    mu = mu + own.eta * (b - x.dual[k] - own.xi * mu);
    mu = mu > 0.0 ? mu : 0.0;
    x.mu[k] = mu < own.chi ? mu : own.chi;
    x.last_b[k] = now;
}

// Estimated, and where FUSED exact, value at the start in channel c.
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
        if (LISTED) x.marks[(h * MARKS + next / 32) * STEP + i] |= 1u << next % 32;
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
                u64 *generator = x.generator + 2 * j;
                x.u[j] = uniform(generator);
                jump(generator, JUMP[4 * stream], JUMP[4 * stream + 1], x.increment + 2 * stream);
            }
            EACH(k, K) dual_step(x, k, task.thresholds[m * K + k], own);
        }
        BARRIER;
        if (!BESIDE && AHEAD) {
            EACH(i, H * S) x.choice[i] = choose(task, m, x, i / S, i % S);
            BARRIER;
        }
        if (lane == (BESIDE ? LANES : 0)) walk(task, x, m, !BESIDE && AHEAD);
        if (evaluates) {  // Alg. 1, line 13 (Alg. 3), and line 8 of the next episode
            if (!FUSED && row >= 0) {
                double *out = task.policies + ((i64)row * task.runs + run) * PAIRS;
                EACH(p, PAIRS) out[p] = x.pi[p];
            }
            const i64 window = x.window[0] < own.windows ? x.window[0] : own.windows - 1;
            const double *lv = own.LV + window * K * H;
            const World world = {
                task.mixed_signals + (i64)e * (1 + K) * PAIRS, task.mixed_P + row * task.entries, row >= 0};
            for (int h = H - 1; h >= 0; h--) {
                step_back(x, world, lane, h, lv, own, improves);
                EVALUATED;
            }
        }
        BARRIER;
        if (evaluates) {
            EACH(j, SIGNALS) {
                const int c = j / H, h = j % H;
                const double *means = task.mixed_signals + ((i64)e * (1 + K) + c) * PAIRS;
                double mean = means[h * STEP + x.a[h] * S + x.s[h]];
                if (NOISY) mean = x.u[2 * H + h * (1 + K) + c] < mean ? 1.0 : 0.0;
                x.signals[j] = mean;
            }
            if (improves) EACH(i, H * S) normalise(x, i);
            if (FUSED && row >= 0)
                EACH(c, 1 + K) task.values[((i64)row * (1 + K) + c) * task.runs + run] = value_at_start(task, x, C + c);
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
    const u64 multiplier[2] = {0x4385df649fccf645ULL, 0x2360ed051fc65da4ULL};
    const u64 none[2] = {0, 0};
    EACH(k, K) x.mu[k] = x.dual[k] = x.last_b[k] = 0.0;
    EACH(stream, 2) {
        u64 *increment = x.increment + 2 * stream;
        const u64 *given = task.generators + (run * 2 + stream) * 4;
        increment[0] = given[2];
        increment[1] = given[3];
        jump(increment, JUMP[4 * stream + 2], JUMP[4 * stream + 3], none);
    }
    EACH(j, DRAWS) {
        const int stream = j < H ? 0 : 1;
        const u64 *given = task.generators + (run * 2 + stream) * 4;
        u64 *own = x.generator + 2 * j;
        own[0] = given[0];
        own[1] = given[1];
        for (int i = 0; i <= (stream ? j - H : j); i++) jump(own, multiplier[0], multiplier[1], given + 2);
    }
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
    if (run < task.runs) begin_run(task, run, threadIdx.x % LANES, state_at(own, own + HOT_BYTES));
}

#else

extern "C" i64 state_bytes() { return STATE_BYTES; }
extern "C" i64 hot_bytes() { return HOT_BYTES; }

static State state_of(const Task *task, i64 run) {
    char *own = task->memory + run * STATE_BYTES;
    return state_at(own, own + HOT_BYTES);
}

extern "C" void begin(const Task *task) {
    for (i64 run = 0; run < task->runs; run++)
        for (int lane = 0; lane < LANES; lane++) begin_run(*task, run, lane, state_of(task, run));
}

static void play_lane(const Task *task, int lane) {
    for (i64 run = 0; run < task->runs; run++) play_run(*task, run, lane, state_of(task, run));
}

extern "C" void play(const Task *task) {
#if LANES > 1
    std::barrier<> together(LANES);
    lanes_barrier = &together;
    std::vector<std::thread> lanes;
    for (int lane = 0; lane < LANES; lane++) lanes.emplace_back(play_lane, task, lane);
    for (auto &lane : lanes) lane.join();
#else
    play_lane(task, 0);
#endif
}

#endif
