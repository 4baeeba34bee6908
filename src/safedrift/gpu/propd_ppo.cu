// PROPD-PPO with counts (Algorithms 1 and 3), one run per group of LANES threads; and the exact
// values of its policies. The same source is compiled for a card and, as plain C++, for the host.
//
// Every parallel phase is a loop `EACH(i, n)` over items that do not touch each other's data,
// followed by BARRIER. No sum is taken across lanes: results do not depend on LANES. Expressions
// are those of kernels/tabular/propd_ppo.py, and are compiled without fused multiply-add; only
// sums over successors run in the order of states here, in the order of first visits there.
//
// Dense arrays: a pair (h, s, a) has the number (h*A + a)*S + s, so that neighbouring lanes touch
// neighbouring numbers. A state without visits in the window has the same estimate for every
// action: its log-policy does not move, as in the sparse engine.
//
// To be defined when compiled: H, S, A, K, C (channels: 1+K, or 1+2K with a plain dual signal),
// J_P, J_R, J_G (scenarios mixed in an episode), NOISY, BERNSTEIN, COUNT (an unsigned type),
// LANES, RUNS (per block), IN_SHARED (the state of a run is in shared memory).

typedef long long i64;
typedef unsigned long long u64;

#ifdef __CUDACC__
#define ENTRY extern "C" __global__ void
#define DEVICE static __device__ __forceinline__
#define HIGH_PRODUCT(a, b) __umul64hi(a, b)
#define AS_DOUBLE(bits) __longlong_as_double(bits)
#define AS_BITS(x) __double_as_longlong(x)
#define MULTIPLY_ADD(a, b, c) fma(a, b, c)  // exact values only: no trajectory depends on them
#define SQRT(x) sqrt(x)
#if LANES > 32
#define BARRIER __syncthreads()
#else
#define BARRIER __syncwarp(mask)
#endif
#else
#include <cmath>
#include <cstring>
#if LANES > 1  // every lane a thread
#include <barrier>
#include <thread>
#include <vector>
static std::barrier<> *lanes_barrier;
#define BARRIER lanes_barrier->arrive_and_wait()
#else
#define BARRIER
#endif
#define DEVICE static inline
#define HIGH_PRODUCT(a, b) (u64)(((unsigned __int128)(a) * (b)) >> 64)
static inline double as_double(i64 bits) { double x; std::memcpy(&x, &bits, 8); return x; }
static inline i64 as_bits(double x) { i64 bits; std::memcpy(&bits, &x, 8); return bits; }
#define AS_DOUBLE(bits) as_double(bits)
#define AS_BITS(x) as_bits(x)
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#define SQRT(x) std::sqrt(x)
#endif

#define EACH(i, n) for (int i = lane; i < (n); i += LANES)

constexpr int PAIRS = H * S * A, STEP = A * S;
constexpr int SIGNALS = (1 + K) * H;
constexpr int DRAWS = NOISY ? 2 * H + SIGNALS : 2 * H;  // uniforms used: actions, states, noise
enum { OPTIMISTIC = 0, PLAIN = 1, OBSERVED = 2 };
enum { ALPHA, ETA, XI, CHI, LAM, SHIFT, SCALE, NUMBERS };        // of a setting
enum { LAGGED, DUAL_SIGNAL, W, L, WINDOWS, FIRST_LV, FLAGS };  // of a setting

// What the kernels are given: every field has eight bytes (gpu/program.py reads their order here).
struct Task {
    // the world (kernels.types.TableArrays)
    const i64 *offsets;
    const unsigned *states;
    const double *probabilities, *cumulative;  // (N, entries)
    const double *rewards, *utilities;         // (N, H, S, A), (N, K, H, S, A)
    const int *initial_states;
    const double *initial, *initial_of_state;
    const int *scenario_P, *scenario_r, *scenario_g;   // (M, J)
    const double *weight_P, *weight_r, *weight_g;      // (M, J)
    const double *thresholds;                          // (M, K)
    i64 entries, starts, M;
    // the learners
    const double *numbers;      // (settings, NUMBERS)
    const i64 *flags;           // (settings, FLAGS)
    const double *root, *tail;  // (settings, H)
    const double *LV;           // (windows, K, H) of all settings
    const int *setting;         // (runs,)
    // random numbers: PCG64
    const u64 *generators;  // (runs, 2, 4) actions, world: state and increment, low words first
    const u64 *jumps;       // (2, 4) over an episode: multiplier, and what the increment is times
    // runs and episodes of this launch
    i64 runs, first, episodes;
    char *memory;          // (runs, STATE_BYTES)
    const int *row;        // (episodes,) row of a measured episode, or -1
    const i64 *measured;   // (rows,) its number
    i64 rows;
    double *policies;      // (rows, H, S, A, runs)
    double *mixed_P;       // (rows, entries)
    double *mixed_signals; // (rows, 1+K, H, S, A)
    double *values;        // (rows, 1+K, runs)
    // sums
    const double *optimal, *weights;  // (rows,)
    const int *record;                // (rows,) place in `found`, or -1
    double *sums;                     // (runs, 2+2K)
    double *found;                    // (runs, recorded, 2+2K)
    i64 recorded;
    // what tests look at, or null
    int *log_states, *log_actions;  // (runs, episodes, H)
    double *log_mu, *log_v;         // (runs, episodes, K), (runs, episodes, C)
};

// ---------------------------------------------------------------- the state of a run

struct State {
    double *logit, *low, *pi, *weight, *bonus, *sums;  // (H, A, S), sums (1+K, H, A, S)
    double *x, *v;                                     // (C, A, S), (2, C, S) of two steps
    double *u, *mu, *dual, *last_b, *signals;          // (DRAWS,), (K,), (K,), (K,), (1+K, H)
    u64 *generator, *increment;                        // (DRAWS, 2), (2, 2)
    i64 *window;
    int *s, *a;      // (H,)
    COUNT *visits;   // (H, A, S)
    COUNT *moves;    // (H-1, S next, A, S)
};

constexpr i64 DOUBLES =
    5 * PAIRS + (1 + K) * PAIRS + C * STEP + 2 * C * S + DRAWS + 3 * K + SIGNALS;
constexpr i64 WORDS = 2 * DRAWS + 4 + 1;
constexpr i64 COUNTS = PAIRS + (i64)(H - 1) * S * STEP;
constexpr i64 STATE_BYTES =
    (8 * (DOUBLES + WORDS) + 8 * H + (i64)sizeof(COUNT) * COUNTS + 15) / 16 * 16;

DEVICE State state_at(char *memory) {
    State x;
    double *d = (double *)memory;
    x.logit = d; d += PAIRS;
    x.low = d; d += PAIRS;
    x.pi = d; d += PAIRS;
    x.weight = d; d += PAIRS;
    x.bonus = d; d += PAIRS;
    x.sums = d; d += (1 + K) * PAIRS;
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
    x.visits = (COUNT *)(x.a + H);
    x.moves = x.visits + PAIRS;
    return x;
}

// ---------------------------------------------------------------- arithmetic

// exp(x) for x <= 0 or hardly above, as in kernels.tabular.propd_ppo.exponentials.
DEVICE double exponential(double given) {
    double x = given > -708.0 ? given : -708.0;
    double shifted = x * 1.4426950408889634 + 6755399441055744.0;
    double k = shifted - 6755399441055744.0;
    double r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
    double y = 1.6059043836821613e-10;
    y = y * r + 2.08767569878681e-09;
    y = y * r + 2.505210838544172e-08;
    y = y * r + 2.755731922398589e-07;
    y = y * r + 2.7557319223985893e-06;
    y = y * r + 2.48015873015873e-05;
    y = y * r + 0.0001984126984126984;
    y = y * r + 0.001388888888888889;
    y = y * r + 0.008333333333333333;
    y = y * r + 0.041666666666666664;
    y = y * r + 0.16666666666666666;
    y = y * r + 0.5;
    y = y * r + 1.0;
    double scale = AS_DOUBLE((i64)((u64)(AS_BITS(shifted) + 1023) << 52));
    return given > -708.0 ? (y * r + 1.0) * scale : 0.0;
}

// x <- x * multiplier + increment modulo 2^128, low words first.
DEVICE void jump(u64 *x, u64 low, u64 high, const u64 *increment) {
    u64 product = x[0] * low;
    u64 upper = HIGH_PRODUCT(x[0], low) + x[0] * high + x[1] * low;
    x[0] = product + increment[0];
    x[1] = upper + increment[1] + (x[0] < product);
}

// The double that NumPy's PCG64 (XSL-RR) makes of a state.
DEVICE double uniform(const u64 *x) {
    u64 bits = x[0] ^ x[1];
    int turn = (int)(x[1] >> 58);
    bits = (bits >> turn) | (bits << ((64 - turn) & 63));
    return (double)(bits >> 11) * (1.0 / 9007199254740992.0);
}

DEVICE double bonus_of_count(int h, double n, const double *numbers, double root, double tail) {
    if (BERNSTEIN) {
        if (n == 0.0) return AS_DOUBLE(0x7ff0000000000000LL);
        double c = numbers[SCALE], lam = numbers[LAM];
        return c * c * (H - h) / n + lam / (n + lam);
    }
    double d = n + numbers[SHIFT];
    if (numbers[SHIFT] == 0.0 && d < 1.0) d = 1.0;
    return root / SQRT(d) + tail / (n + numbers[LAM]);
}

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
    const double *weight = task.weight_P + m * J_P;
    int j = 0;
    while (j + 1 < J_P && (u >= weight[j] || weight[j] == 0.0)) {
        u -= weight[j];
        j++;
    }
    while (weight[j] == 0.0) j--;  // rounding pushed u past the last scenario in use
    u = u / weight[j];
    u = u < 1.0 - 1e-16 ? u : 1.0 - 1e-16;
    const double *cumulative = task.cumulative + task.scenario_P[m * J_P + j] * task.entries;
    i64 row = ((i64)h * S + s) * A + a;
    i64 low = task.offsets[row], high = task.offsets[row + 1] - 1;
    while (high - low > 8) {
        i64 middle = (low + high) / 2;
        if (u < cumulative[middle]) high = middle;
        else low = middle + 1;
    }
    i64 place = low;
    for (i64 e = low; e < high; e++) place += u >= cumulative[e];
    return (int)task.states[place];
}

// Mean of signal c (0: reward) at (h, s, a) in episode m.
DEVICE double mean_signal(const Task &task, i64 m, int c, int h, int s, int a) {
    i64 pair = ((i64)h * S + s) * A + a;
    double mean = 0.0;
    if (c == 0) {
        for (int j = 0; j < J_R; j++)
            mean += task.weight_r[m * J_R + j] * task.rewards[task.scenario_r[m * J_R + j] * (i64)PAIRS + pair];
    } else {
        for (int j = 0; j < J_G; j++) {
            i64 bank = task.scenario_g[m * J_G + j] * (i64)K + (c - 1);
            mean += task.weight_g[m * J_G + j] * task.utilities[bank * PAIRS + pair];
        }
    }
    return mean;
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
    while (chosen >= A || pi[chosen * S] == 0.0) chosen--;
    return chosen;
}

// ---------------------------------------------------------------- Algorithm 3: evaluation

// Estimates of all channels at one pair of step h: Alg. 3, lines 3 to 8.
DEVICE void estimate(const State &x, int h, int i, const double *lv, const double *numbers) {
    const int p = h * STEP + i;
    const double most = (double)(H - h);
    const double n = (double)x.visits[p];
    const COUNT *moves = x.moves + (i64)h * S * STEP + i;
    const double *ahead = x.v + ((h + 1) & 1) * C * S;
    double q[C];
    for (int c = 0; c < C; c++) q[c] = x.sums[(c <= K ? c : c - K) * PAIRS + p];
    if (h + 1 < H && n > 0.0) {
        for (int next = 0; next < S; next++) {
            double times = (double)moves[next * STEP];
            for (int c = 0; c < C; c++) q[c] += times * ahead[c * S + next];
        }
    }
    if (BERNSTEIN && h + 1 < H) {
        double times = n > 0.0 ? n : 1.0;
        for (int c = 0; c <= K; c++) {
            double mean = (q[c] - x.sums[c * PAIRS + p]) / times, square = 0.0;
            for (int next = 0; next < S && n > 0.0; next++) {
                double off = ahead[c * S + next] - mean;
                square += (double)moves[next * STEP] * off * off;
            }
            q[c] += numbers[SCALE] * SQRT(square) / times * (n + numbers[LAM]);
        }
    }
    for (int c = 0; c < C; c++) {
        double y = q[c] * x.weight[p];
        if (c <= K) y = y + (x.bonus[p] + (c > 0 ? lv[(c - 1) * H + h] : 0.0));
        y = y < most ? y : most;
        y = y > 0.0 ? y : 0.0;
        if (c > K && n == 0.0) y = most;
        x.x[c * STEP + i] = y;
    }
}

// V of channel c at (h, s): the average of its estimates over the policy.
DEVICE void average(const State &x, int h, int i) {
    const int c = i / S, s = i % S;
    double value = 0.0;
    for (int a = 0; a < A; a++) value = value + x.pi[h * STEP + a * S + s] * x.x[c * STEP + a * S + s];
    x.v[(h & 1) * C * S + i] = value;
}

// log pi_{m+1} = log pi_m + alpha (Q_r + mu Q_g) at one pair, relative to action 0, in two floats.
DEVICE void improve(const State &x, int h, int i, double alpha) {
    const int p = h * STEP + i, s = i % S;
    double step = (x.x[i] - x.x[s]) + x.mu[0] * (x.x[STEP + i] - x.x[STEP + s]);
    for (int k = 1; k < K; k++)
        step += x.mu[k] * (x.x[(1 + k) * STEP + i] - x.x[(1 + k) * STEP + s]);
    double old = x.logit[p];
    double add = alpha * step + x.low[p];
    double sum = old + add;
    double back = sum - old;
    x.low[p] = (old - (sum - back)) + (add - back);
    x.logit[p] = sum;
}

// pi from its logarithms at one (h, s); where the window has no visits it has not changed.
DEVICE void normalise(const State &x, int i) {
    const int first = (i / S) * STEP + i % S;
    bool seen = false;
    for (int a = 0; a < A; a++) seen |= x.visits[first + a * S] > 0;
    if (!seen) return;
    double top = 0.0, total = 0.0, y[A];
    for (int a = 1; a < A; a++) {
        double z = x.logit[first + a * S];
        top = top < z ? z : top;
    }
    for (int a = 0; a < A; a++) {
        y[a] = exponential((x.logit[first + a * S] - top) + x.low[first + a * S]);
        total = total + y[a];
    }
    total = 1.0 / total;
    for (int a = 0; a < A; a++) x.pi[first + a * S] = y[a] * total;
}

// ---------------------------------------------------------------- Algorithm 1

DEVICE void play_run(const Task &task, i64 run, int lane, char *memory, unsigned mask) {
    const State x = state_at(memory);
    const int setting = task.setting[run];
    const double *numbers = task.numbers + setting * NUMBERS;
    const i64 *flags = task.flags + setting * FLAGS;
    const double *root = task.root + setting * H, *tail = task.tail + setting * H;
    const double lam = numbers[LAM];
    const i64 windows = flags[WINDOWS];
    i64 window_age = task.first % flags[W], policy_age = task.first % flags[L];
    (void)mask;
    for (i64 e = 0; e < task.episodes; e++) {  // Alg. 1, line 2
        const i64 m = task.first + e;
        const bool opens = window_age == 0, restarts = policy_age == 0;
        window_age = window_age + 1 == flags[W] ? 0 : window_age + 1;
        policy_age = policy_age + 1 == flags[L] ? 0 : policy_age + 1;
        // Forget, and draw this episode's uniforms.
        if (opens) {  // Alg. 1, line 3: no data yet
            EACH(p, PAIRS) {
                int h = p / STEP;
                x.visits[p] = 0;
                x.weight[p] = 1.0 / lam;
                x.bonus[p] = bonus_of_count(h, 0.0, numbers, root[h], tail[h]);
                for (int c = 0; c <= K; c++) x.sums[c * PAIRS + p] = 0.0;
            }
            EACH(j, (H - 1) * S * STEP) x.moves[j] = 0;
        }
        if (restarts) {  // Alg. 1, lines 4 and 5
            EACH(p, PAIRS) {
                x.logit[p] = 0.0;
                x.low[p] = 0.0;
                x.pi[p] = 1.0 / A;
            }
        }
        EACH(j, DRAWS) {
            const int stream = j < H ? 0 : 1;
            x.u[j] = uniform(x.generator + 2 * j);
            const u64 *over = task.jumps + 4 * stream;
            jump(x.generator + 2 * j, over[0], over[1], x.increment + 2 * stream);
        }
        BARRIER;
        // Act; the policy is written down meanwhile.
        if (lane == 0) {
            if (opens) x.window[0] += 1;
            int s = first_state(task, x.u[H]);
            for (int h = 0; h < H; h++) {
                x.s[h] = s;
                int a = x.a[h] = pick(x, h, s, x.u[h]);
                if (h + 1 < H) s = next_state(task, m, h, s, a, x.u[H + h + 1]);
            }
        }
        const int row = task.row[e];
        if (row >= 0) {
            double *out = task.policies + (i64)row * PAIRS * task.runs + run;
            EACH(j, PAIRS) {  // j is (h*S + s)*A + a
                int a = j % A, s = j / A % S, h = j / STEP;
                out[j * task.runs] = x.pi[(h * A + a) * S + s];
            }
        }
        BARRIER;
        EACH(j, SIGNALS) {
            int c = j / H, h = j % H;
            double mean = mean_signal(task, m, c, h, x.s[h], x.a[h]);
            if (NOISY) mean = x.u[2 * H + h * (1 + K) + c] < mean ? 1.0 : 0.0;
            x.signals[j] = mean;
        }
        EACH(k, K) {  // Alg. 1, line 12
            double mu = x.mu[k], now = task.thresholds[m * K + k];
            double b = flags[LAGGED] ? x.last_b[k] : now;
            mu = mu + numbers[ETA] * (b - x.dual[k] - numbers[XI] * mu);
            mu = mu > 0.0 ? mu : 0.0;
            x.mu[k] = mu < numbers[CHI] ? mu : numbers[CHI];
            x.last_b[k] = now;
        }
        BARRIER;
        // Evaluate, and step towards the next policy (Alg. 1, line 13; Alg. 3; Alg. 1, line 8).
        const bool improves = policy_age != 0;  // else the next policy is uniform
        const i64 window = x.window[0] < windows ? x.window[0] : windows - 1;
        const double *lv = task.LV + flags[FIRST_LV] + window * K * H;
        for (int h = H - 1; h >= 0; h--) {
            EACH(i, STEP) estimate(x, h, i, lv, numbers);
            BARRIER;
            EACH(i, C * S) average(x, h, i);
            if (improves) EACH(i, STEP - S) improve(x, h, S + i, numbers[ALPHA]);
            BARRIER;
        }
        EACH(c, C) {  // Alg. 3, line 10
            double value = 0.0;
            for (int s = 0; s < S; s++) value += task.initial_of_state[s] * x.v[c * S + s];
            const int used = flags[DUAL_SIGNAL] == PLAIN ? 1 + K : 1;
            if (flags[DUAL_SIGNAL] != OBSERVED && c >= used && c < used + K) x.dual[c - used] = value;
            if (task.log_v) task.log_v[(run * task.episodes + e) * C + c] = value;
        }
        if (flags[DUAL_SIGNAL] == OBSERVED) {
            EACH(k, K) {
                double total = 0.0;
                for (int h = 0; h < H; h++) total += x.signals[(1 + k) * H + h];
                x.dual[k] = total;
            }
        }
        if (improves) EACH(i, H * S) normalise(x, i);
        BARRIER;
        EACH(h, H) {  // the episode enters the window
            const int s = x.s[h], a = x.a[h], p = (h * A + a) * S + s;
            const COUNT n = ++x.visits[p];
            x.weight[p] = 1.0 / ((double)n + lam);
            x.bonus[p] = bonus_of_count(h, (double)n, numbers, root[h], tail[h]);
            for (int c = 0; c <= K; c++) x.sums[c * PAIRS + p] += x.signals[c * H + h];
            if (h + 1 < H) x.moves[((i64)h * S + x.s[h + 1]) * STEP + a * S + s] += 1;
            if (task.log_states) {
                task.log_states[(run * task.episodes + e) * H + h] = s;
                task.log_actions[(run * task.episodes + e) * H + h] = a;
            }
        }
        if (task.log_mu) EACH(k, K) task.log_mu[(run * task.episodes + e) * K + k] = x.mu[k];
        BARRIER;
    }
}

// Before the first episode: zero multipliers, generators at the first number of each kind.
DEVICE void begin_run(const Task &task, i64 run, int lane, char *memory) {
    const State x = state_at(memory);
    const u64 multiplier[2] = {0x4385df649fccf645ULL, 0x2360ed051fc65da4ULL};
    const u64 none[2] = {0, 0};
    EACH(k, K) x.mu[k] = x.dual[k] = x.last_b[k] = 0.0;
    EACH(stream, 2) {
        u64 *increment = x.increment + 2 * stream;
        const u64 *given = task.generators + (run * 2 + stream) * 4;
        increment[0] = given[2];
        increment[1] = given[3];
        jump(increment, task.jumps[4 * stream + 2], task.jumps[4 * stream + 3], none);
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

// ---------------------------------------------------------------- exact values

// P, r and g of a measured episode: entry i of (entries + (1+K) H S A).
DEVICE void mix(const Task &task, int row, i64 i) {
    const i64 m = task.measured[row];
    if (i < task.entries) {
        const int *scenario = task.scenario_P + m * J_P;
        const double *weight = task.weight_P + m * J_P;
        double p = 0.0;
        for (int j = 0; j < J_P; j++)
            if (weight[j] > 0.0) p += weight[j] * task.probabilities[scenario[j] * task.entries + i];
        if (J_P == 1) p = task.probabilities[scenario[0] * task.entries + i];
        task.mixed_P[row * task.entries + i] = p;
    } else {
        const int j = (int)(i - task.entries), c = j / PAIRS, pair = j % PAIRS;
        const double mean = mean_signal(task, m, c, pair / STEP, pair / A % S, pair % A);
        task.mixed_signals[(i64)row * (1 + K) * PAIRS + j] = mean;
    }
}

// V_r and V_g of the policy of a run in a measured episode. Neighbouring threads have the same
// episode, so they read the same numbers of the world, and neighbouring numbers of their policies.
DEVICE void evaluate(const Task &task, int row, i64 run) {
    double V[2][1 + K][S];
    const double *p = task.mixed_P + row * task.entries;
    const double *signal = task.mixed_signals + (i64)row * (1 + K) * PAIRS;
    const double *policy = task.policies + (i64)row * PAIRS * task.runs + run;
    for (int h = H - 1; h >= 0; h--) {
        for (int s = 0; s < S; s++) {
            double total[1 + K];
            for (int c = 0; c <= K; c++) total[c] = 0.0;
            for (int a = 0; a < A; a++) {
                const int pair = (h * S + s) * A + a;
                double q[1 + K];
                for (int c = 0; c <= K; c++) q[c] = signal[c * PAIRS + pair];
                if (h + 1 < H)
                    for (i64 e = task.offsets[pair]; e < task.offsets[pair + 1]; e++)
                        for (int c = 0; c <= K; c++)
                            q[c] = MULTIPLY_ADD(p[e], V[(h + 1) & 1][c][task.states[e]], q[c]);
                const double chance = policy[pair * task.runs];
                for (int c = 0; c <= K; c++) total[c] = MULTIPLY_ADD(chance, q[c], total[c]);
            }
            for (int c = 0; c <= K; c++) V[h & 1][c][s] = total[c];
        }
    }
    for (int c = 0; c <= K; c++) {
        double value = 0.0;
        for (int i = 0; i < task.starts; i++)
            value += task.initial[i] * V[0][c][task.initial_states[i]];
        task.values[((i64)row * (1 + K) + c) * task.runs + run] = value;
    }
}

// Running sums of regret, its positive part, shortfalls and theirs, episode after episode.
DEVICE void accumulate(const Task &task, i64 run) {
    double *sums = task.sums + run * (2 + 2 * K);
    for (int row = 0; row < task.rows; row++) {
        const double weight = task.weights[row];
        const double *value = task.values + (i64)row * (1 + K) * task.runs + run;
        const double regret = task.optimal[row] - value[0];
        sums[0] += regret * weight;
        sums[1] += (regret > 0.0 ? regret : 0.0) * weight;
        for (int k = 0; k < K; k++) {
            const double short_by =
                task.thresholds[task.measured[row] * K + k] - value[(1 + k) * task.runs];
            sums[2 + k] += short_by * weight;
            sums[2 + K + k] += (short_by > 0.0 ? short_by : 0.0) * weight;
        }
        if (task.record[row] >= 0) {
            double *found = task.found + (run * task.recorded + task.record[row]) * (2 + 2 * K);
            for (int i = 0; i < 2 + 2 * K; i++) found[i] = sums[i];
        }
    }
}

// ---------------------------------------------------------------- entry points

#ifdef __CUDACC__

extern __shared__ u64 shared_memory[];

// Registers are limited so that 640 threads of small runs fit on a multiprocessor: more of them
// than the states in its shared memory. Large blocks are few there, whatever they use.
constexpr int BLOCKS = LANES * RUNS > 512 ? 1 : !IN_SHARED ? 4 : LANES > 32 ? 1 : 640 / (LANES * RUNS);

extern "C" __global__ void __launch_bounds__(LANES * RUNS, BLOCKS) play(const Task *given) {
    const Task task = *given;
    const i64 run = (i64)blockIdx.x * RUNS + threadIdx.x / LANES;
    if (run >= task.runs) return;  // a whole group, whose lanes alone share its barriers
    const int lane = threadIdx.x % LANES;
    const unsigned group = threadIdx.x % 32 / (LANES < 32 ? LANES : 32);
    const unsigned mask = LANES >= 32 ? 0xffffffffu : ((1u << (LANES & 31)) - 1) << (group * LANES);
    char *own = task.memory + run * STATE_BYTES;
    if (IN_SHARED) {
        u64 *here = shared_memory + threadIdx.x / LANES * (STATE_BYTES / 8);
        for (int i = lane; i < STATE_BYTES / 8; i += LANES) here[i] = ((u64 *)own)[i];
        BARRIER;
        play_run(task, run, lane, (char *)here, mask);
        for (int i = lane; i < STATE_BYTES / 8; i += LANES) ((u64 *)own)[i] = here[i];
    } else {
        play_run(task, run, lane, own, mask);
    }
}

ENTRY begin(const Task *given) {
    const Task task = *given;
    const i64 run = (i64)blockIdx.x * RUNS + threadIdx.x / LANES;
    if (run < task.runs) begin_run(task, run, threadIdx.x % LANES, task.memory + run * STATE_BYTES);
}

ENTRY mix_worlds(const Task *given) {
    const Task task = *given;
    const i64 size = task.entries + (1 + K) * PAIRS;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < task.rows * size;
         i += (i64)gridDim.x * blockDim.x)
        mix(task, (int)(i / size), i % size);
}

ENTRY evaluate_policies(const Task *given) {
    const Task task = *given;
    const i64 run = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (run >= task.runs) return;
    for (int row = blockIdx.y; row < task.rows; row += gridDim.y) evaluate(task, row, run);
}

ENTRY accumulate_sums(const Task *given) {
    const Task task = *given;
    const i64 run = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (run < task.runs) accumulate(task, run);
}

#else

extern "C" i64 state_bytes() { return STATE_BYTES; }

extern "C" void begin(const Task *task) {
    for (i64 run = 0; run < task->runs; run++)
        for (int lane = 0; lane < LANES; lane++)
            begin_run(*task, run, lane, task->memory + run * STATE_BYTES);
}

static void play_lane(const Task *task, int lane) {
    for (i64 run = 0; run < task->runs; run++)
        play_run(*task, run, lane, task->memory + run * STATE_BYTES, 0);
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

extern "C" void mix_worlds(const Task *task) {
    for (int row = 0; row < task->rows; row++)
        for (i64 i = 0; i < task->entries + (1 + K) * PAIRS; i++) mix(*task, row, i);
}

extern "C" void evaluate_policies(const Task *task) {
    for (int row = 0; row < task->rows; row++)
        for (i64 run = 0; run < task->runs; run++) evaluate(*task, row, run);
}

extern "C" void accumulate_sums(const Task *task) {
    for (i64 run = 0; run < task->runs; run++) accumulate(*task, run);
}

#endif
