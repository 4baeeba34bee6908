// Small worlds: each lane of a warp has one state of a run with all its actions, and a warp, called a
// team, plays TEAM runs. V of the next step is read once for all actions; averages over the policy,
// the mirror step and the new policy stay within a lane, so a step back is one phase. Exact values
// are found on the way. Arrays of the runs of a team are interleaved: neighbouring lanes touch
// neighbouring numbers.

constexpr int ROW = TEAM * S;                        // lanes of a team
constexpr int CHANNELS = C + 1 + K;                  // estimates, then exact values
constexpr int WIDTH = (CHANNELS + 1) / 2 * 2;        // of the channels of a state, in doubles
constexpr int IN_A_WORD = 4 / (int)sizeof(COUNT);    // counts
constexpr int WORDS = (S + IN_A_WORD) / IN_A_WORD;   // of the counts of a pair: S moves, and visits
constexpr int ENTRIES = A * S;                       // of the transitions of a state
constexpr int P_PAIRS = (ENTRIES + 1) / 2;           // of them, read two at a time
constexpr int WORLD_P = H > 1 ? (H - 1) * P_PAIRS * 2 * S : 2;  // of an episode

// Memory of a team. `hot` is looked up at random, of `cold` a lane reads each number once. What
// belongs to a step of the horizon lies together, so that one offset leads to all of it.
constexpr bool HOT_LOGITS = SHARED_STATE == 3;
constexpr int LOGITS = 12 * (A - 1) * ROW;  // bytes of a step
constexpr int COUNTS_AT = (8 * A * ROW + (HOT_LOGITS ? LOGITS : 0) + 15) / 16 * 16;
constexpr int HOT_STEP = COUNTS_AT + (4 * A * ROW * WORDS + 15) / 16 * 16;
constexpr int COLD_STEP = (8 * A * ROW * (1 + K) + (HOT_LOGITS ? 0 : LOGITS) + 15) / 16 * 16;
constexpr int LOGIT_STEP = HOT_LOGITS ? HOT_STEP : COLD_STEP;

struct Team {
    double *pi;                         // (A, ROW) of each step
    unsigned *counts;                   // (A, ROW, WORDS)
    double *sums, *logit;               // (A, ROW, 1+K), (A-1, ROW)
    int *low;                           // (A-1, ROW) upper halves
    double *v;                          // (2, ROW, WIDTH) of two steps
    u64 *generator, *increment;         // (DRAWS, TEAM, 2), (2, TEAM, 2)
    double *u, *mu, *dual, *last_b;     // (DRAWS, TEAM), (K, TEAM) each
    double *signals;                    // (H, 1+K, TEAM)
    i64 *window, *scenario;             // (TEAM,), (H, TEAM) first entry of a scenario
    int *visited;                       // (H, TEAM) state + 2^16 action
};

constexpr i64 RUN_DOUBLES = 3 * DRAWS + 4 + 3 * K + SIGNALS + H + 1;
constexpr i64 HOT_BYTES = (i64)H * HOT_STEP + (8 * (2 * ROW * WIDTH + RUN_DOUBLES * TEAM) + 4 * H * TEAM + 15) / 16 * 16;
constexpr i64 STATE_BYTES = HOT_BYTES + (i64)H * COLD_STEP;

DEVICE Team team_at(char *hot, char *cold) {
    Team x;
    x.pi = (double *)hot;
    x.sums = (double *)cold;
    x.logit = HOT_LOGITS ? x.pi + A * ROW : x.sums + A * ROW * (1 + K);
    x.counts = (unsigned *)(hot + COUNTS_AT);
    x.low = (int *)(x.logit + (A - 1) * ROW);
    x.v = (double *)(hot + H * HOT_STEP);
    x.generator = (u64 *)(x.v + 2 * ROW * WIDTH);
    x.increment = x.generator + 2 * DRAWS * TEAM;
    x.u = (double *)(x.increment + 4 * TEAM);
    x.mu = x.u + DRAWS * TEAM;
    x.dual = x.mu + K * TEAM;
    x.last_b = x.dual + K * TEAM;
    x.signals = x.last_b + K * TEAM;
    x.window = (i64 *)(x.signals + SIGNALS * TEAM);
    x.scenario = x.window + TEAM;
    x.visited = (int *)(x.scenario + H * TEAM);
    return x;
}

// The memory of step h.
DEVICE Team at_step(Team x, int h) {
    x.pi += h * (HOT_STEP / 8);
    x.counts += h * (HOT_STEP / 4);
    x.sums += h * (COLD_STEP / 8);
    x.logit += h * (LOGIT_STEP / 8);
    x.low += h * (LOGIT_STEP / 4);
    return x;
}

// The counts of a pair, in words.
struct alignas(WORDS % 4 == 0 ? 16 : WORDS % 2 == 0 ? 8 : 4) Counts {
    unsigned words[WORDS];
};

DEVICE unsigned entry(const Counts &x, int i) {
    return sizeof(COUNT) == 4 ? x.words[i] : (COUNT)(x.words[i / 2] >> 16 * (i % 2));
}

DEVICE void add_one(unsigned *words, int i) {
    if (sizeof(COUNT) == 4) words[i] += 1;
    else words[i / 2] += i % 2 ? 65536 : 1;
}

// What an episode is about, but for what its steps read of the world.
struct Episode {
    int row;  // or -1: not measured
    int scenario[J_P];
    double weight[J_P], b[K];
};

DEVICE Episode episode_at(const Task &task, int e) {
    const i64 m = task.first + e;
    Episode x;
    x.row = task.row[e];
    for (int j = 0; j < J_P; j++) {
        x.scenario[j] = task.scenario_P[m * J_P + j];
        x.weight[j] = task.weight_P[m * J_P + j];
    }
    for (int k = 0; k < K; k++) x.b[k] = task.thresholds[m * K + k];
    return x;
}

// ---------------------------------------------------------------- acting

// All uniforms of an episode; those of successors within their scenarios.
DEVICE void draw_all(const Team &x, const Episode &now, i64 entries, int r, int lane) {
    EACH(j, H) x.u[j * TEAM + r] = draw(x.generator + 2 * (j * TEAM + r), x.increment + 2 * r, 0);
    EACH(i, DRAWS - H) {
        const int j = H + i;
        double u = draw(x.generator + 2 * (j * TEAM + r), x.increment + 2 * (TEAM + r), 1), share;
        if (i > 0 && i < H) {
            int scenario = now.scenario[0];
            if (J_P > 1) {
                scenario = scenario_of(now.scenario, now.weight, u, share);
                u = u * inverse(share);
            }
            x.scenario[i * TEAM + r] = scenario * entries;
        }
        x.u[j * TEAM + r] = u;
    }
}

// An action with the uniform u; the last one that is possible where all sum up to less.
DEVICE int pick(const double *pi, double u) {
    double below[A];
    int chosen = 0;
    below[0] = pi[0];
    for (int a = 1; a < A; a++) below[a] = below[a - 1] + pi[a * ROW];  // Alg. 1, line 9
    for (int a = 0; a + 1 < A; a++) chosen += u >= below[a] && below[a] < below[A - 1];
    return chosen;
}

// How many of the first `last` of at most S numbers are not above u: each lane of a run compares one.
DEVICE int beyond(const double *cumulative, int last, double u, int r, int lane) {
#ifdef __CUDACC__
    const bool passed = u >= cumulative[lane < last ? lane : last] && lane < last;
    return __popc(__ballot_sync(0xffffffff, passed) >> r * S & ((1u << S) - 1));
#else
    int place = 0;
    for (int i = 0; i < last; i++) place += u >= cumulative[i];
    return place;
#endif
}

// Walk through an episode: all lanes of a run together.
DEVICE void walk(const Task &task, const Team &x, int r, int lane) {
    int s = task.initial_states[beyond(task.initial_cumulative, (int)task.starts - 1, x.u[H * TEAM + r], r, lane)];
    for (int h = 0; h < H; h++) {
        const int a = pick(at_step(x, h).pi + r * S + s, x.u[h * TEAM + r]);
        if (lane == 0) x.visited[h * TEAM + r] = s | a << 16;
        if (h + 1 == H) break;
        const int j = (h + 1) * TEAM + r, row = (h * S + s) * A + a;
        const int first = DENSE ? row * S : (int)task.offsets[row];
        const int last = (DENSE ? S : (int)task.offsets[row + 1] - first) - 1;
        const int place = beyond(task.cumulative + x.scenario[j] + first, last, x.u[H * TEAM + j], r, lane);
        s = DENSE ? place : (int)task.states[first + place];
    }
}

// ---------------------------------------------------------------- Algorithm 3: evaluation

// The world of an episode: where its part of mixed_signals (H, A, S, 1+K) begins, and where it is
// measured that of mixed_P (H-1, pairs of entries (a, next), S, 2).
struct World {
    unsigned signals, P;
};

// Estimates of all channels at (h, s, a), from V at all states of the next step; `x` is at step h.
template <bool LAST>
DEVICE void estimate(const Team &x, int h, int a, int at, const double *ahead, const double *lv, const Setting &own, double *found) {
    const int p = a * ROW + at;
    const Counts counts = ((const Counts *)x.counts)[p];
    const unsigned visits = entry(counts, S);
    const Count n = count_of(h, visits, own);
    double sums[1 + K], total[C], deviation[1 + K];
    load<1 + K>(sums, x.sums + p * (1 + K));
    for (int c = 0; c < C; c++) total[c] = 0.0;
    for (int c = 0; c <= K; c++) deviation[c] = 0.0;
    if (!LAST) {
        double times[S];
        for (int next = 0; next < S; next++) times[next] = (double)entry(counts, next);
        for (int c = 0; c < C; c++) {
            for (int next = 0; next < S; next++) total[c] = FMA(times[next], ahead[next * CHANNELS + c], total[c]);
            if (!BERNSTEIN || c > K) continue;
            const double mean = total[c] * n.inverse;
            double square = 1e-60;  // no root of 0
            for (int next = 0; next < S; next++) {
                const double off = ahead[next * CHANNELS + c] - mean;
                square = FMA(times[next] * off, off, square);
            }
            deviation[c] = root_of(square);
        }
    }
    estimates(h, visits == 0, n, sums, total, deviation, lv, found);
}

// One step back at (h, s): estimates, the step towards the next policy, and V of all channels.
template <bool LAST, bool MEASURED>
DEVICE void step_back(const Task &task, const Team &team, const World &world, int h, int r, int s, const double *lv, const Setting &own) {
    const Team x = at_step(team, h);
    const int at = r * S + s;
    const double *ahead_of = x.v + ((h + 1) % 2 * ROW + r * S) * WIDTH;
    const double *signals_of = task.mixed_signals + (world.signals + h * (STEP * (1 + K)) + s * (1 + K));
    const double *P_of = task.mixed_P + (world.P + h * (P_PAIRS * 2 * S) + 2 * s);
    double ahead[LAST ? 1 : S * CHANNELS], P[LAST ? 1 : 2 * P_PAIRS], signals[A][1 + K];
    double pi[A], high[A], V[WIDTH], reference[1 + K];
    int low[A];
    if (!LAST)
        for (int next = 0; next < S; next++) load<CHANNELS, WIDTH>(ahead + next * CHANNELS, ahead_of + next * WIDTH);
    if (MEASURED) {
        for (int a = 0; a < A; a++) load<1 + K>(signals[a], signals_of + a * S * (1 + K));
        for (int i = 0; !LAST && i < P_PAIRS; i++) load<2>(P + 2 * i, P_of + i * 2 * S);
    }
    for (int c = 0; c < WIDTH; c++) V[c] = 0.0;
#pragma unroll
    for (int a = 0; a < A; a++) {
        double q[CHANNELS];
        const double chance = x.pi[a * ROW + at];
        estimate<LAST>(x, h, a, at, ahead, lv, own, q);
        for (int c = 0; MEASURED && c <= K; c++) {
            q[C + c] = signals[a][c];
            for (int next = 0; !LAST && next < S; next++)
                q[C + c] = FMA(P[a * S + next], ahead[next * CHANNELS + C + c], q[C + c]);
        }
        for (int c = 0; c < (MEASURED ? CHANNELS : C); c++) V[c] = FMA(chance, q[c], V[c]);
        if (a == 0) {
            for (int c = 0; c <= K; c++) reference[c] = q[c];
            continue;
        }
        double step = q[0] - reference[0];  // Alg. 1, line 8 of the next episode
        for (int k = 0; k < K; k++) step = FMA(x.mu[k * TEAM + r], q[1 + k] - reference[1 + k], step);
        high[a] = x.logit[(a - 1) * ROW + at];
        low[a] = x.low[(a - 1) * ROW + at];
        mirror_step(own.alpha * step, high[a], low[a]);
    }
    for (int i = 0; i < WIDTH; i += 2) ((Two *)(x.v + (h % 2 * ROW + at) * WIDTH))[i / 2] = {V[i], V[i + 1]};
    softmax(high, low, pi);
    for (int a = 0; a < A; a++) x.pi[a * ROW + at] = pi[a];
    for (int a = 1; a < A; a++) {
        x.logit[(a - 1) * ROW + at] = high[a];
        x.low[(a - 1) * ROW + at] = low[a];
    }
}

template <bool MEASURED>
DEVICE void evaluate_policy(const Task &task, const Team &x, const World &world, int r, int lane, const double *lv, const Setting &own) {
    EACH(s, S) step_back<true, MEASURED>(task, x, world, H - 1, r, s, lv, own);
    BARRIER;
    for (int h = H - 2; h >= 0; h--) {
        EACH(s, S) step_back<false, MEASURED>(task, x, world, h, r, s, lv, own);
        BARRIER;
    }
}

// Estimated or exact value at the start in channel c.
DEVICE double value_at_start(const Task &task, const Team &x, int r, int c) {
    double value = 0.0;
    for (int s = 0; s < S; s++) value += task.initial_of_state[s] * x.v[(r * S + s) * WIDTH + c];
    return value;
}

// ---------------------------------------------------------------- Algorithm 1

// A new window: no data yet (Alg. 1, line 3).
DEVICE void open_window(const Team &x, int r, int s) {
    for (int h = 0; h < H; h++) {
        const Team now = at_step(x, h);
        for (int a = 0; a < A; a++) {
            const int p = a * ROW + r * S + s;
            for (int j = 0; j < WORDS; j++) now.counts[p * WORDS + j] = 0;
            for (int c = 0; c <= K; c++) now.sums[p * (1 + K) + c] = 0.0;
        }
    }
    if (s == 0) x.window[r] += 1;
}

// A restart: Alg. 1, lines 4 and 5.
DEVICE void restart(const Team &x, int r, int s) {
    for (int h = 0; h < H; h++) {
        const Team now = at_step(x, h);
        for (int a = 0; a < A; a++) now.pi[a * ROW + r * S + s] = 1.0 / A;
        for (int a = 1; a < A; a++) {
            now.logit[(a - 1) * ROW + r * S + s] = 0.0;
            now.low[(a - 1) * ROW + r * S + s] = 0;
        }
    }
}

// Where in mixed_signals those of an episode begin, and those of what happened at its step h.
DEVICE unsigned signals_of(int e) { return (unsigned)e * (1 + K) * PAIRS; }
DEVICE unsigned signals_at(const Team &x, int e, int h, int r) {
    const int visited = x.visited[h * TEAM + r];
    return signals_of(e) + ((h * A + (visited >> 16)) * S + (visited & 0xffff)) * (1 + K);
}

// The episode enters the window: what happened at step h, where signals have the given means.
DEVICE void count(const Team &x, const double *means, int h, int r) {
    const Team now = at_step(x, h);
    const int visited = x.visited[h * TEAM + r], s = visited & 0xffff, a = visited >> 16;
    const int p = a * ROW + r * S + s;
    add_one(now.counts + p * WORDS, S);
    if (h + 1 < H) add_one(now.counts + p * WORDS, x.visited[(h + 1) * TEAM + r] & 0xffff);
    for (int c = 0; c <= K; c++) {
        double signal = means[c];
        if (NOISY) signal = x.u[(2 * H + h * (1 + K) + c) * TEAM + r] < signal ? 1.0 : 0.0;
        x.signals[(h * (1 + K) + c) * TEAM + r] = signal;
        now.sums[p * (1 + K) + c] += signal;
    }
}

// Exact values, and what the next dual step sees of V_g: Alg. 3, line 10.
DEVICE void values_of(const Task &task, const Team &x, i64 run, int e, int row, int r, int lane, const Setting &own) {
    if (row >= 0)
        EACH(c, 1 + K) task.values[((i64)row * (1 + K) + c) * task.runs + run] = value_at_start(task, x, r, C + c);
    if (own.dual_signal == OBSERVED && !task.log_v) return;
    EACH(c, C) {
        const double value = value_at_start(task, x, r, c);
        const int used = own.dual_signal == PLAIN ? 1 + K : 1;
        if (own.dual_signal != OBSERVED && c >= used && c < used + K) x.dual[(c - used) * TEAM + r] = value;
        if (task.log_v) task.log_v[(run * task.episodes + e) * C + c] = value;
    }
}

DEVICE void log_episode(const Task &task, const Team &x, i64 run, int e, int r, int lane) {
    const i64 place = run * task.episodes + e;
    EACH(h, H) {
        task.log_states[place * H + h] = x.visited[h * TEAM + r] & 0xffff;
        task.log_actions[place * H + h] = x.visited[h * TEAM + r] >> 16;
    }
    EACH(k, K) task.log_mu[place * K + k] = x.mu[k * TEAM + r];
}

// Episodes of this launch before the next one whose number is a multiple of `period`.
constexpr int ENDLESS = 1 << 30;
DEVICE int until(const Task &task, i64 period) {
    const i64 left = (period - task.first % period) % period;
    return left < ENDLESS ? (int)left : ENDLESS;
}

// All episodes of a launch, of run number r of a team.
DEVICE void play_run(const Task &task, i64 run, int r, int lane, const Team &x) {
    const Setting own = setting_of(task, task.setting[run]);
    int until_window = until(task, own.W), until_restart = until(task, own.L);
    Episode now = episode_at(task, 0);
    for (int e = 0; e < (int)task.episodes; e++) {  // Alg. 1, line 2
        const Episode coming = episode_at(task, e + 1 < task.episodes ? e + 1 : e);
        if (until_window == 0) {
            EACH(s, S) open_window(x, r, s);
            until_window = own.W < ENDLESS ? (int)own.W : ENDLESS;
        }
        if (until_restart == 0) {
            EACH(s, S) restart(x, r, s);
            until_restart = own.L < ENDLESS ? (int)own.L : ENDLESS;
        }
        until_window--;
        until_restart--;
        draw_all(x, now, task.entries, r, lane);
        EACH(k, K) {
            const int j = k * TEAM + r;
            x.mu[j] = dual_step(x.mu[j], own.lagged ? x.last_b[j] : now.b[k], x.dual[j], own);
            x.last_b[j] = now.b[k];
        }
        BARRIER;
        walk(task, x, r, lane);
        BARRIER;
        if (now.row < 0) EACH(h, H) PREFETCH(task.mixed_signals + signals_at(x, e, h, r));
        // Alg. 1, line 13 (Alg. 3), and line 8 of the next episode
        const World world = {signals_of(e), (unsigned)now.row * WORLD_P};
        const i64 window = x.window[r] < own.windows ? x.window[r] : own.windows - 1;
        const double *lv = own.LV + window * K * H;
        if (now.row >= 0) evaluate_policy<true>(task, x, world, r, lane, lv, own);
        else evaluate_policy<false>(task, x, world, r, lane, lv, own);
        values_of(task, x, run, e, now.row, r, lane, own);
        EACH(h, H) count(x, task.mixed_signals + signals_at(x, e, h, r), h, r);
        if (task.log_states) log_episode(task, x, run, e, r, lane);
        BARRIER;
        if (own.dual_signal == OBSERVED) {
            EACH(k, K) {
                double total = 0.0;
                for (int h = 0; h < H; h++) total += x.signals[(h * (1 + K) + 1 + k) * TEAM + r];
                x.dual[k * TEAM + r] = total;
            }
        }
        now = coming;
    }
}

// Before the first episode: zero multipliers, generators at the first number of each kind.
DEVICE void begin_run(const Task &task, i64 run, int r, int lane, const Team &x) {
    const u64 *given = task.generators + run * 8;
    EACH(k, K) x.mu[k * TEAM + r] = x.dual[k * TEAM + r] = x.last_b[k * TEAM + r] = 0.0;
    EACH(stream, 2) begin_increment(given + 4 * stream, stream, x.increment + 2 * (stream * TEAM + r));
    EACH(j, DRAWS) begin_generator(given + (j < H ? 0 : 4), j < H ? j : j - H, x.generator + 2 * (j * TEAM + r));
    if (lane == 0) x.window[r] = -1;
}

// ---------------------------------------------------------------- entry points

#ifdef __CUDACC__

extern __shared__ u64 shared_memory[];

constexpr int TEAMS = RUNS / TEAM;  // of a block

// The last team may be smaller; lanes without a run leave at once.
extern "C" __global__ void __launch_bounds__(TEAMS * 32, BLOCKS) play(const __grid_constant__ Task task) {
    const int warp = threadIdx.x / 32, place = threadIdx.x % 32, r = place / S;
    const i64 team = (i64)blockIdx.x * TEAMS + warp, run = team * TEAM + r;
    if (r >= TEAM || run >= task.runs) return;
    const i64 left = task.runs - team * TEAM;
    const int playing = (left < TEAM ? (int)left : TEAM) * S;
    char *own = task.memory + team * STATE_BYTES;
    constexpr int SIZE = (int)((SHARED_STATE == 2 ? STATE_BYTES : HOT_BYTES) / 16);
    Two *here = (Two *)shared_memory + warp * SIZE;
    for (int i = place; i < SIZE; i += playing) here[i] = ((Two *)own)[i];
    BARRIER;
    char *hot = (char *)here;
    play_run(task, run, r, place % S, team_at(hot, SHARED_STATE == 2 ? hot + HOT_BYTES : own + HOT_BYTES));
    BARRIER;
    for (int i = place; i < SIZE; i += playing) ((Two *)own)[i] = here[i];
}

extern "C" __global__ void begin(const __grid_constant__ Task task) {
    const int place = threadIdx.x % 32, r = place / S;
    const i64 team = (i64)blockIdx.x * TEAMS + threadIdx.x / 32, run = team * TEAM + r;
    char *own = task.memory + team * STATE_BYTES;
    if (r < TEAM && run < task.runs) begin_run(task, run, r, place % S, team_at(own, own + HOT_BYTES));
}

#else

static Team team_of(const Task *task, i64 run) {
    char *own = task->memory + run / TEAM * STATE_BYTES;
    return team_at(own, own + HOT_BYTES);
}

static void begin_on_host(const Task *task, i64 run, int lane) {
    begin_run(*task, run, (int)(run % TEAM), lane, team_of(task, run));
}

static void play_on_host(const Task *task, i64 run, int lane) {
    play_run(*task, run, (int)(run % TEAM), lane, team_of(task, run));
}

#endif
