// PROPD-PPO with counts (Algorithms 1 and 3), one run per group of LANES threads; and the exact
// values of its policies. Three files make one program, compiled for a card and, as plain C++, for
// the host: state.cu, playing.cu, measuring.cu.
//
// Every parallel phase is a loop `EACH(i, n)` over items that do not touch each other's data,
// followed by BARRIER. No sum is taken across lanes: results do not depend on LANES. Expressions
// are those of kernels/tabular/propd_ppo.py up to rounding: sums run over the states in their order
// here, in the order of first visits there, and only where FMA is written is a product not rounded.
//
// Dense arrays: a pair (h, s, a) has the number (h*A + a)*S + s, so that neighbouring lanes touch
// neighbouring numbers. A state without visits in the window has the same estimate for every
// action: its log-policy does not move, as in the sparse engine.
//
// To be defined when compiled: H, S, A, K, C (channels: 1+K, or 1+2K with a plain dual signal),
// J_P, J_R, J_G (scenarios mixed in an episode), NOISY, BERNSTEIN, HAS_LV, DENSE (all S states are
// listed as successors of every pair), COUNT (an unsigned type), LANES, RUNS (per block), BLOCKS
// (per multiprocessor, at least), SHARED_STATE (of the state of a run: 2 all, 1 the hot part, or 0
// nothing is in shared memory), JUMP_0 to JUMP_7 (numbers of a jump over the draws of an episode, for actions
// and for the world: multiplier, and what the increment is times).

typedef long long i64;
typedef unsigned long long u64;

#ifdef __CUDACC__
#define DEVICE static __device__ __forceinline__
#define HIGH_PRODUCT(a, b) __umul64hi(a, b)
#define AS_DOUBLE(bits) __longlong_as_double(bits)
#define AS_BITS(x) __double_as_longlong(x)
#define FMA(a, b, c) fma(a, b, c)
#define LOWEST(bits) (__ffs(bits) - 1)
#define CONSTANT static __constant__
#define PREFETCH(address) asm volatile("prefetch.L1 [%0];" ::"l"(address))
#define GROUP_BARRIER __syncwarp()
#if LANES > 32  // one more warp acts while these lanes evaluate
#define BARRIER __syncthreads()
#define EVALUATED asm volatile("bar.sync 1, %0;" ::"n"(LANES) : "memory")
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
static std::barrier<> *lanes_barrier;
#define BARRIER lanes_barrier->arrive_and_wait()
#else
#define BARRIER
#endif
#define GROUP_BARRIER BARRIER
#define EVALUATED BARRIER
#define DEVICE static inline
#define HIGH_PRODUCT(a, b) (u64)(((unsigned __int128)(a) * (b)) >> 64)
static inline double as_double(i64 bits) { double x; std::memcpy(&x, &bits, 8); return x; }
static inline i64 as_bits(double x) { i64 bits; std::memcpy(&bits, &x, 8); return bits; }
#define AS_DOUBLE(bits) as_double(bits)
#define AS_BITS(x) as_bits(x)
#define FMA(a, b, c) ((a) * (b) + (c))
#define LOWEST(bits) __builtin_ctz(bits)
#define CONSTANT static const
#define PREFETCH(address) (void)(address)
#endif

#define EACH(i, n) for (int i = lane; i < (n); i += LANES)

constexpr int PAIRS = H * S * A, STEP = A * S;
constexpr int SIGNALS = (1 + K) * H;
constexpr int DRAWS = NOISY ? 2 * H + SIGNALS : 2 * H;  // uniforms used: actions, states, noise
constexpr bool LISTED = S > 8;        // observed successors are marked, else all S are read
constexpr int MARKS = (S + 31) / 32;  // words of marks of a pair
constexpr bool FUSED = DENSE && !LISTED;  // exact values are found on the way, no policy is written
constexpr int CHANNELS = FUSED ? C + 1 + K : C;
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
CONSTANT u64 JUMP[] = {JUMP_0, JUMP_1, JUMP_2, JUMP_3, JUMP_4, JUMP_5, JUMP_6, JUMP_7};
constexpr bool AHEAD = H * S <= 4 * LANES;  // choose in all (h, s) at once, and walk afterwards
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

// ---------------------------------------------------------------- the state of a run

struct State {
    // hot: looked up at random
    double *pi;                                     // (H, A, S)
    double *x, *v;                                  // (CHANNELS, A, S), (2, CHANNELS, S) of two steps
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

constexpr i64 DOUBLES = PAIRS + CHANNELS * (STEP + 2 * S) + DRAWS + 3 * K + SIGNALS;
constexpr i64 WORDS = 2 * DRAWS + 4 + 1;
constexpr i64 INTEGERS = 2 * H + H * S + (LISTED ? (H - 1) * MARKS * STEP : 0);
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
    x.x = d; d += CHANNELS * STEP;
    x.v = d; d += 2 * CHANNELS * S;
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
    x.visits = (COUNT *)(x.marks + (LISTED ? (H - 1) * MARKS * STEP : 0));
    x.moves = x.visits + PAIRS;
    x.seen = (unsigned char *)(x.moves + (i64)(H - 1) * S * STEP);
    d = (double *)cold;
    x.logit = d; d += LOGITS;
    x.sums = d; d += (1 + K) * PAIRS;
    x.low = (int *)d;
    return x;
}

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

// ---------------------------------------------------------------- arithmetic

// 1/13!, 1/12!, ..., 1/2!, 1, and log2(e), ln 2 in two parts.
CONSTANT double SERIES[] = {
    1.6059043836821613e-10, 2.08767569878681e-09, 2.505210838544172e-08, 2.755731922398589e-07,
    2.7557319223985893e-06, 2.48015873015873e-05, 0.0001984126984126984, 0.001388888888888889,
    0.008333333333333333, 0.041666666666666664, 0.16666666666666666, 0.5, 1.0};
CONSTANT double LOGARITHMS[] = {1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10};

// exp(x) for x <= 0 or hardly above, as in kernels.tabular.propd_ppo.exponentials.
DEVICE double exponential(double given) {
    const double x = given > -708.0 ? given : -708.0;
    const double shifted = FMA(x, LOGARITHMS[0], 6755399441055744.0);
    const double k = shifted - 6755399441055744.0;
    const double r = FMA(-k, LOGARITHMS[2], FMA(-k, LOGARITHMS[1], x));
    double y = SERIES[0];
#pragma unroll
    for (int i = 1; i < 13; i++) y = FMA(y, r, SERIES[i]);
    const double scale = AS_DOUBLE((i64)((u64)(AS_BITS(shifted) + 1023) << 52));
    return given > -708.0 ? FMA(y, r, 1.0) * scale : 0.0;
}

// The square root of a variance; of next to nothing, or less through rounding, 0.
DEVICE double deviation_of(double x) {
#ifdef __CUDACC__
    double guess;  // 20 bits, doubled twice
    asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(guess) : "d"(x));
    const double half = 0.5 * guess;
    double y = x * guess;
    y = FMA(FMA(-y, y, x), half, y);
    y = FMA(FMA(-y, y, x), half, y);
#else
    const double y = std::sqrt(x);
#endif
    return x > 1e-30 ? y : 0.0;
}

// 1/x of a number of visits, or a little more.
DEVICE double inverse(double x) {
#ifdef __CUDACC__
    double y;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
    y = FMA(FMA(-x, y, 1.0), y, y);
    return FMA(FMA(-x, y, 1.0), y, y);
#else
    return 1.0 / x;
#endif
}

// The upper half of a double, and a double with that upper half: 20 bits of a correction.
DEVICE int upper_half(double x) { return (int)(AS_BITS(x) >> 32); }
DEVICE double from_upper_half(int x) { return AS_DOUBLE((i64)x << 32); }

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
