// PROPD-PPO with counts (Algorithms 1 and 3), many runs at once; and the exact values of their
// policies. One program of several files, compiled for a card and, as plain C++, for the host:
// common.cu; then teams.cu, where the lanes of a warp have a state each and play several runs, or
// groups.cu, where a group of lanes plays one; then measuring.cu.
//
// Every parallel phase is a loop `EACH(i, n)` over items that do not touch each other's data,
// followed by a barrier. No sum is taken across lanes: results do not depend on LANES. Expressions
// are those of kernels/tabular/propd_ppo.py up to rounding: sums run over the states in their order
// here, in the order of first visits there, and only where FMA is written is a product not rounded.
//
// Arrays are dense. A state without visits in the window has the same estimate for every action:
// its log-policy does not move, as in the sparse engine.
//
// To be defined when compiled: H, S, A, K, C (channels: 1+K, or 1+2K with a plain dual signal),
// J_P, J_R, J_G (scenarios mixed in an episode), NOISY, BERNSTEIN, HAS_LV, DENSE (all S states are
// listed as successors of every pair), COUNT (an unsigned type of visits), SLOT (one of a successor,
// whose number has NEXT_BITS, with its visits), HOT_SLOTS (of these in the hot part of a state), PAIR
// (one of numbers up to A S), LANES, TEAM (runs of a team, or 0: groups), RUNS (per block), BLOCKS (per multiprocessor, at least), SHARED_STATE (of the
// state of a run: 2 all, 1 the hot part, or 0 nothing is in shared memory), JUMP_0 to JUMP_7 (numbers
// of a jump over the draws of an episode, for actions and for the world: multiplier, and what the
// increment is times).

typedef long long i64;
typedef unsigned long long u64;

#ifndef WARP  // lanes; on the host it may be defined as 1
#define WARP 32
#endif

#ifdef __CUDACC__
#define DEVICE static __device__ __forceinline__
#define HIGH_PRODUCT(a, b) __umul64hi(a, b)
#define AS_DOUBLE(bits) __longlong_as_double(bits)
#define AS_BITS(x) __double_as_longlong(x)
#define FMA(a, b, c) fma(a, b, c)
#define CONSTANT static __constant__
#define TABLE static __device__ const
#define PREFETCH(address) asm volatile("prefetch.L1 [%0];" ::"l"(address))
#if LANES > WARP  // two more warps have the states and act: those with states wait here with the lanes
#define BARRIER __syncthreads()
#define EVALUATED asm volatile("bar.sync 1, %0;" ::"n"(LANES + WARP) : "memory")
#else
#define BARRIER __syncwarp()
#define EVALUATED __syncwarp()
#endif
#else
#include <cmath>
#include <cstring>
#if LANES > 1  // every lane a thread
#include <barrier>
#include <thread>
#include <vector>
static std::barrier<> *all_lanes, *evaluating_lanes;
#define BARRIER all_lanes->arrive_and_wait()
#define EVALUATED evaluating_lanes->arrive_and_wait()
#else
#define BARRIER
#define EVALUATED
#endif
#define DEVICE static inline
#define HIGH_PRODUCT(a, b) (u64)(((unsigned __int128)(a) * (b)) >> 64)
static inline double as_double(i64 bits) { double x; std::memcpy(&x, &bits, 8); return x; }
static inline i64 as_bits(double x) { i64 bits; std::memcpy(&bits, &x, 8); return bits; }
#define AS_DOUBLE(bits) as_double(bits)
#define AS_BITS(x) as_bits(x)
#define FMA(a, b, c) ((a) * (b) + (c))
#define CONSTANT static const
#define TABLE static const
#define PREFETCH(address) (void)(address)
#endif

constexpr bool BESIDE = LANES > WARP;

#define EACH(i, n) for (int i = lane; i < (n); i += LANES)

constexpr int PAIRS = H * S * A, STEP = A * S;
constexpr int SIGNALS = (1 + K) * H;
constexpr int DRAWS = NOISY ? 2 * H + SIGNALS : 2 * H;  // uniforms used: actions, states, noise
constexpr bool FUSED = TEAM > 0;  // exact values are found on the way, no policy is written
CONSTANT u64 JUMP[] = {JUMP_0, JUMP_1, JUMP_2, JUMP_3, JUMP_4, JUMP_5, JUMP_6, JUMP_7};
enum { OPTIMISTIC = 0, PLAIN = 1, OBSERVED = 2 };
enum { ALPHA, ETA, XI, CHI, LAM, SHIFT, SCALE, NUMBERS };      // of a setting
enum { LAGGED, DUAL_SIGNAL, W, L, WINDOWS, FIRST_LV, FLAGS };  // of a setting

// What the kernels are given: every field has eight bytes (gpu/program.py reads their order here).
struct Task {
    // the world (kernels.types.TableArrays)
    const i64 *offsets;
    const unsigned *states;
    const double *probabilities, *cumulative;  // (N, entries)
    const double *rewards, *utilities;         // (N, H, S, A), (N, K, H, S, A)
    const int *initial_states;
    const double *initial_cumulative, *initial_of_state;
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
    // runs and episodes of this launch
    i64 runs, first, episodes;
    char *memory;          // (runs, STATE_BYTES)
    const int *row;        // (episodes,) row of a measured episode, or -1
    const i64 *measured;   // (rows,) its number
    i64 rows;
    double *policies;      // (rows, runs, H, A, S), or nothing where FUSED
    double *mixed_P;       // (rows, entries), where FUSED (rows, H, S next, A, S)
    double *mixed_signals; // (episodes, 1+K, H, A, S)
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

// What a setting is, in registers.
struct Setting {
    double alpha, eta, xi, chi, lam, shift, scale;
    const double *root, *tail, *LV;  // (H,), (H,), (windows, K, H)
    i64 W, L, windows;
    int lagged, dual_signal;
};

DEVICE Setting setting_of(const Task &task, int number) {
    const double *x = task.numbers + number * NUMBERS;
    const i64 *flags = task.flags + number * FLAGS;
    Setting own;
    own.alpha = x[ALPHA]; own.eta = x[ETA]; own.xi = x[XI]; own.chi = x[CHI];
    own.lam = x[LAM]; own.shift = x[SHIFT]; own.scale = x[SCALE];
    own.root = task.root + number * H;
    own.tail = task.tail + number * H;
    own.LV = task.LV + flags[FIRST_LV];
    own.W = flags[W]; own.L = flags[L]; own.windows = flags[WINDOWS];
    own.lagged = (int)flags[LAGGED]; own.dual_signal = (int)flags[DUAL_SIGNAL];
    return own;
}

// ---------------------------------------------------------------- two numbers at a time

struct alignas(16) Two {
    double x, y;
};

// Copy N doubles of an array in which these are STRIDE apart, two at a time if they lie so.
template <int N, int STRIDE = N> DEVICE void load(double *to, const double *from) {
    constexpr int PAIRED = STRIDE % 2 ? 0 : N / 2;
    for (int i = 0; i < PAIRED; i++) {
        const Two both = ((const Two *)from)[i];
        to[2 * i] = both.x;
        to[2 * i + 1] = both.y;
    }
    for (int i = 2 * PAIRED; i < N; i++) to[i] = from[i];
}

// And from there.
template <int N> DEVICE void store(double *to, const double *from) {
    constexpr int PAIRED = N % 2 ? 0 : N / 2;
    for (int i = 0; i < PAIRED; i++) ((Two *)to)[i] = {from[2 * i], from[2 * i + 1]};
    for (int i = 2 * PAIRED; i < N; i++) to[i] = from[i];
}

// ---------------------------------------------------------------- arithmetic

// Doubles and their halves.
DEVICE unsigned upper_half(double x) { return (unsigned)(AS_BITS(x) >> 32); }
DEVICE unsigned lower_half(double x) { return (unsigned)AS_BITS(x); }
DEVICE double from_halves(unsigned upper, unsigned lower) { return AS_DOUBLE((i64)((u64)upper << 32 | lower)); }
DEVICE unsigned lesser(unsigned x, unsigned y) { return x < y ? x : y; }

// 2^(i/64).
TABLE double POWERS[] = {
    1.0, 1.0108892860517005, 1.0218971486541166, 1.0330248790212284,
    1.0442737824274138, 1.0556451783605572, 1.0671404006768237, 1.0787607977571199,
    1.0905077326652577, 1.102382583307841, 1.1143867425958924, 1.1265216186082418,
    1.1387886347566916, 1.1511892299529827, 1.1637248587775775, 1.1763969916502812,
    1.189207115002721, 1.202156731452703, 1.215247359980469, 1.22848053610687,
    1.241857812073484, 1.255380757024691, 1.2690509571917332, 1.2828700160787783,
    1.2968395546510096, 1.3109612115247644, 1.3252366431597413, 1.339667524053303,
    1.3542555469368927, 1.3690024229745905, 1.383909881963832, 1.3989796725383112,
    1.4142135623730951, 1.42961333839197, 1.4451808069770467, 1.460917794180647,
    1.4768261459394993, 1.4929077282912648, 1.5091644275934228, 1.5255981507445384,
    1.5422108254079407, 1.559004400237837, 1.5759808451078865, 1.593142151342267,
    1.6104903319492543, 1.6280274218573478, 1.645755478153965, 1.6636765803267364,
    1.681792830507429, 1.7001063537185235, 1.718619298122478, 1.7373338352737062,
    1.7562521603732995, 1.7753764925265212, 1.7947090750031072, 1.8142521755003989,
    1.8340080864093424, 1.8539791250833855, 1.8741676341103, 1.8945759815869656,
    1.9152065613971474, 1.9360617934922943, 1.9571441241754002, 1.978456026387951};

// exp(x) for x <= 0 or hardly above, and about exp(-708) for less: 2^(k/64) exp(r), as with a longer series in
// kernels.tabular.propd_ppo.exponentials.
DEVICE double exponential(double given) {
    const double x = from_halves(lesser(upper_half(given), 0xc0862000u), lower_half(given));  // its size grows with its bits
    const double shifted = FMA(x, 92.332482616893656, 6755399441055744.0);  // 64 / ln 2
    const int k = (int)AS_BITS(shifted);
    const double r = FMA(shifted - 6755399441055744.0, -0.010830424696249145, x);
    const double y = FMA(FMA(FMA(FMA(FMA(1.0 / 120, r, 1.0 / 24), r, 1.0 / 6), r, 0.5), r, 1.0), r, 1.0);
    const double power = POWERS[k & 63];
    return y * from_halves(upper_half(power) + (((unsigned)k << 14) & 0xfff00000u), lower_half(power));
}

// The square root of a number above 0. A guess of 20 bits is made three times as long.
DEVICE double root_of(double x) {
#ifdef __CUDACC__
    double guess;
    asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(guess) : "d"(x));
    const double y = x * guess, off = FMA(-y, guess, 1.0);
    return FMA(y * off, FMA(off, 0.375, 0.5), y);
#else
    return std::sqrt(x);
#endif
}

// 1/x of a number of visits, or a little more.
DEVICE double inverse(double x) {
#ifdef __CUDACC__
    double y;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
    const double off = FMA(-x, y, 1.0);
    return FMA(FMA(off, off, off), y, y);
#else
    return 1.0 / x;
#endif
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

// A draw of an episode; the generator jumps to the same draw of the next one.
DEVICE double draw(u64 *generator, const u64 *increment, int stream) {
    const double u = uniform(generator);
    jump(generator, JUMP[4 * stream], JUMP[4 * stream + 1], increment);
    return u;
}

// Generators of a run before its first episode, at the first number of each kind.
DEVICE void begin_generator(const u64 *given, int steps, u64 *own) {
    const u64 low = 0x4385df649fccf645ULL, high = 0x2360ed051fc65da4ULL;
    own[0] = given[0];
    own[1] = given[1];
    for (int i = 0; i <= steps; i++) jump(own, low, high, given + 2);
}

// What a jump over the draws of an episode adds.
DEVICE void begin_increment(const u64 *given, int stream, u64 *own) {
    const u64 none[2] = {0, 0};
    own[0] = given[2];
    own[1] = given[3];
    jump(own, JUMP[4 * stream + 2], JUMP[4 * stream + 3], none);
}

// ---------------------------------------------------------------- one step through the world

// Which of the scenarios of an episode a uniform belongs to. Of `u` remains its part in that scenario,
// and `share` is the scenario's weight: u / share is uniform again.
DEVICE int scenario_of(const int *scenarios, const double *weight, double &u, double &share) {
    double rest = u;
    int scenario = scenarios[0];
    bool found = false;
    share = 1.0;
    for (int j = 0; j < J_P; j++) {
        const double w = weight[j];
        if (!found && w > 0.0) {
            scenario = scenarios[j];
            share = w;
            rest = u;
            found = u < w;
            u -= w;
        }
    }
    u = rest;
    return scenario;
}

// ---------------------------------------------------------------- formulas of the algorithms

// mu after the dual step of constraint k: Alg. 1, line 12.
DEVICE double dual_step(double mu, double b, double signal, const Setting &own) {
    mu = mu + own.eta * (b - signal - own.xi * mu);
    mu = mu > 0.0 ? mu : 0.0;
    return mu < own.chi ? mu : own.chi;
}

// Of n visits: 1 over n + lam, with Bernstein's bonus 1 over n as well (of none as if there were
// one), the part of the bonus that is the same for all channels, and what the root of Σ n (V - mean)²
// is multiplied by in the other part. One reciprocal does for both.
struct Count {
    double weight, inverse, bonus, factor;
};

DEVICE Count count_of(int h, unsigned visits, const Setting &own) {
    Count x;
    if (BERNSTEIN) {  // c sqrt(variance/n) + c² (H-h)/n + lam/(n+lam)
        const double n = (double)(visits > 1 ? visits : 1), more = n + own.lam, both = inverse(n * more);
        x.weight = both * n;
        x.inverse = both * more;
        x.factor = own.scale * x.inverse;
        x.bonus = FMA(own.scale * (double)(H - h), x.factor, own.lam * x.weight);
        return x;
    }
    const double n = (double)visits, d = own.shift == 0.0 && visits == 0 ? 1.0 : n + own.shift;
    x.weight = inverse(n + own.lam);
    x.inverse = x.factor = 0.0;
    x.bonus = FMA(own.root[h], inverse(root_of(d)), own.tail[h] * x.weight);
    return x;
}

// Estimates of all channels at a pair: Alg. 3, lines 3 to 8. Given n and what follows of it, sums of
// signals, Σ n V over observed successors, and the root of Σ n (V - mean)².
DEVICE void estimates(
    int h, bool unseen, const Count &n, const double *sums, const double *total, const double *deviation,
    const double *lv, double *found) {
    const double most = (double)(H - h);
    for (int c = 0; c < C; c++) {
        double y = (sums[c <= K ? c : c - K] + total[c]) * n.weight;
        if (c <= K) {
            y = FMA(sums[c] + total[c], n.weight, HAS_LV && c > 0 ? n.bonus + lv[(c - 1) * H + h] : n.bonus);
            if (BERNSTEIN) y = FMA(n.factor, deviation[c], y);
        }
        y = y < most ? y : most;  // and no term is below 0
        if (unseen && (BERNSTEIN || c > K)) y = most;
        found[c] = y;
    }
}

// log pi_{m+1} = log pi_m + step, relative to action 0, in two floats.
DEVICE void mirror_step(double step, double &high, int &low) {
    const double add = step + from_halves((unsigned)low, 0);
    const double sum = high + add, back = sum - high;
    low = (int)upper_half((high - (sum - back)) + (add - back));  // 20 bits of the correction
    high = sum;
}

// pi from its logarithms relative to action 0 in two floats, of which those of action 0 are 0.
DEVICE void softmax(const double *high, const int *low, double *pi) {
    double most = 0.0, total = 1.0;
    int top = 0, most_low = 0;
    for (int a = 1; a < A; a++) {
        if (high[a] > most) {
            most = high[a];
            most_low = low[a];
            top = a;
        }
    }
    pi[0] = 1.0;
    for (int a = 1; a < A; a++) {  // the largest is 1: its exponential is that of action 0
        const double x = (a == top ? 0.0 : high[a]) - most;
        const double y = exponential(x + (from_halves(a == top ? 0u : low[a], 0) - from_halves(most_low, 0)));
        total = total + y;
        pi[a] = a == top ? 1.0 : y;
        pi[0] = a == top ? y : pi[0];
    }
    const double share = inverse(total);
    for (int a = 0; a < A; a++) pi[a] = pi[a] * share;
}
