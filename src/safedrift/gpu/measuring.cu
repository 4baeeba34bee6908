// ---------------------------------------------------------------- worlds of single episodes

// Σ_j weight_j value_j, over the scenarios of an episode.
template <int J> DEVICE double mixture(const double *weight, const int *scenario, const double *values, i64 size, i64 i) {
    double mean = 0.0;
    for (int j = 0; j < J; j++) mean += weight[j] * values[scenario[j] * size + i];
    return mean;
}

// Mean of signal c (0: reward) at a pair (h*S + s)*A + a in episode m.
DEVICE double mean_signal(const Task &task, i64 m, int c, int pair) {
    if (c == 0)
        return mixture<J_R>(task.weight_r + m * J_R, task.scenario_r + m * J_R, task.rewards, PAIRS, pair);
    const i64 i = (i64)(c - 1) * PAIRS + pair;
    return mixture<J_G>(task.weight_g + m * J_G, task.scenario_g + m * J_G, task.utilities, (i64)K * PAIRS, i);
}

// Entry e of the transitions of episode m.
DEVICE double transition(const Task &task, i64 m, i64 e) {
    const int *scenario = task.scenario_P + m * J_P;
    const double *weight = task.weight_P + m * J_P;
    if (J_P == 1) return task.probabilities[scenario[0] * task.entries + e];
    double p = 0.0;
    for (int j = 0; j < J_P; j++)
        if (weight[j] > 0.0) p += weight[j] * task.probabilities[scenario[j] * task.entries + e];
    return p;
}

#if TEAM
// Item i of the transitions of a measured episode: (H-1, pairs of entries (a, next), S, 2), with 0
// where a state is not listed as a successor.
DEVICE void mix_transitions(const Task &task, i64 row, i64 i) {
    const int s = (int)(i / 2 % S), h = (int)(i / (2 * S * P_PAIRS));
    const int entry = (int)(i / (2 * S) % P_PAIRS * 2 + i % 2), a = entry / S, next = entry % S;
    double p = 0.0;
    if (a < A && h + 1 < H) {
        const i64 pair = ((i64)h * S + s) * A + a;
        for (i64 e = task.offsets[pair]; e < task.offsets[pair + 1]; e++)
            if ((int)task.states[e] == next) p = transition(task, task.measured[row], e);
    }
    task.mixed_P[row * WORLD_P + i] = p;
}

DEVICE constexpr i64 world_doubles(i64) { return WORLD_P; }
#else
// Entry i of the transitions of a measured episode; (H, A, S, S next) where every pair lists all states.
DEVICE void mix_transitions(const Task &task, i64 row, i64 i) {
    const i64 h = i / (STEP * S), a = i / (S * S) % A, s = i / S % S;
    const i64 e = DENSE ? ((h * S + s) * A + a) * S + i % S : i;
    task.mixed_P[row * task.entries + i] = transition(task, task.measured[row], e);
}

DEVICE constexpr i64 world_doubles(i64 entries) { return entries; }
#endif

// Item i of all signals of the episodes of this launch, (episodes, H, A, S, 1+K).
DEVICE void mix_signals(const Task &task, i64 i) {
    const i64 e = i / ((1 + K) * PAIRS);
    const int c = (int)(i % (1 + K)), p = (int)(i / (1 + K) % PAIRS);
    const int pair = (p / STEP * S + p % S) * A + p / S % A;
    task.mixed_signals[i] = mean_signal(task, task.first + e, c, pair);
}

// ---------------------------------------------------------------- exact values

constexpr int THREADS = 64;  // of a block (MEASURING in gpu/runs.py)

// V_r and V_g of the policy of a run in a measured episode: how likely it is in each state, step by
// step forward, and what it is paid there. That takes one pass however many signals there are.
DEVICE void evaluate(const Task &task, i64 row, i64 run) {
    double likely[2][S], value[1 + K];
    const double *p = task.mixed_P + row * task.entries;
    const double *signal = task.mixed_signals + (task.measured[row] - task.first) * (1 + K) * PAIRS;
    const double *policy = task.policies + (row * task.runs + run) * PAIRS;
    for (int s = 0; s < S; s++) likely[0][s] = task.initial_of_state[s];
    for (int c = 0; c <= K; c++) value[c] = 0.0;
    for (int h = 0; h < H; h++) {
        const double *now = likely[h & 1];
        double *next = likely[(h + 1) & 1];
        for (int s = 0; s < S; s++) next[s] = 0.0;
        for (int i = 0; i < STEP; i++) {
            const int a = i / S, s = i % S, pair = (h * S + s) * A + a;
            const double chance = now[s] * policy[h * STEP + i];
            for (int c = 0; c <= K; c++) value[c] = FMA(chance, signal[(h * STEP + i) * (1 + K) + c], value[c]);
            if (h + 1 == H) continue;
            if (DENSE) {
                for (int j = 0; j < S; j++) next[j] = FMA(chance, p[(h * STEP + i) * S + j], next[j]);
            } else {
                for (i64 e = task.offsets[pair]; e < task.offsets[pair + 1]; e++)
                    next[task.states[e]] = FMA(chance, p[e], next[task.states[e]]);
            }
        }
    }
    for (int c = 0; c <= K; c++) task.values[(row * (1 + K) + c) * task.runs + run] = value[c];
}

#ifdef __CUDACC__

// The same sums for a block of runs, with the states in registers: all threads have the same episode,
// and read P, signals and their policies from shared memory, a few actions of a step at a time.
constexpr bool TILED = DENSE && !FUSED && S <= 20;
constexpr int TOGETHER = 16 / S < 1 ? 1 : 16 / S < A ? 16 / S : A;   // actions
constexpr int ITEMS = TILED ? TOGETHER * S : 2;                      // pairs
constexpr int CHUNK = S % 2 ? 1 : 2;                                 // numbers that are read at once
constexpr int ROW_SIZE = (ITEMS / CHUNK / 2 * 2 + 1) * CHUNK;        // of a policy: an odd number of chunks

struct Tile {
    alignas(16) double P[ITEMS * S];              // (actions, S, S next)
    alignas(16) double signals[ITEMS * (1 + K)];  // (actions, S, 1+K)
    alignas(16) double pi[THREADS * ROW_SIZE];    // (threads, actions, S)
};

// A chunk on its way to shared memory, while the thread goes on.
DEVICE void fetch(double *to, const double *from) {
    const unsigned there = (unsigned)__cvta_generic_to_shared(to);
    if (CHUNK == 2) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(there), "l"(from));
    else asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(there), "l"(from));
}

DEVICE void fetch_tile(const Task &task, i64 row, int h, int first, Tile &tile) {
    const int from = h * STEP + first * S, pairs = (A - first < TOGETHER ? A - first : TOGETHER) * S;
    const double *p = task.mixed_P + row * task.entries + from * S;
    const double *signals = task.mixed_signals + ((task.measured[row] - task.first) * PAIRS + from) * (1 + K);
    const int thread = threadIdx.x;
    if (h + 1 < H)
        for (int i = thread * CHUNK; i < pairs * S; i += THREADS * CHUNK) fetch(tile.P + i, p + i);
    for (int i = thread * CHUNK; i < pairs * (1 + K); i += THREADS * CHUNK) fetch(tile.signals + i, signals + i);
    // Each warp fetches the policies of its runs, of as many at once as it has lanes for.
    constexpr int CHUNKS = ITEMS / CHUNK, WIDE = 32 / CHUNKS;
    const int warp = thread / 32 * 32, r = thread % 32 / CHUNKS, i = thread % 32 % CHUNKS * CHUNK;
    const i64 run = (i64)blockIdx.x * THREADS + warp;
    const int runs = task.runs - run < 32 ? (int)(task.runs - run) : 32;
    const double *policy = task.policies + (row * task.runs + run + r) * PAIRS + from + i;
    double *pi = tile.pi + (warp + r) * ROW_SIZE + i;
    for (int j = r; j < runs && r < WIDE && i < pairs; j += WIDE) {
        fetch(pi, policy);
        pi += WIDE * ROW_SIZE;
        policy += WIDE * PAIRS;
    }
    asm volatile("cp.async.commit_group;");
}

DEVICE void evaluate_tiled(const Task &task, i64 row, i64 run, Tile *tiles) {
    constexpr int PARTS = (A + TOGETHER - 1) / TOGETHER;  // of a step
    double likely[S], next[S], value[1 + K];
    fetch_tile(task, row, 0, 0, tiles[0]);
#pragma unroll
    for (int s = 0; s < S; s++) likely[s] = task.initial_of_state[s];
    for (int c = 0; c <= K; c++) value[c] = 0.0;
    for (int h = 0; h < H; h++) {
#pragma unroll
        for (int s = 0; s < S; s++) next[s] = 0.0;
        for (int part = 0; part < PARTS; part++) {
            const int now = h * PARTS + part, first = part * TOGETHER;
            const Tile &tile = tiles[now % 2];
            asm volatile("cp.async.wait_group 0;" ::: "memory");
            __syncthreads();  // this tile is there, and nobody reads the other one any more
            if (part + 1 < PARTS) fetch_tile(task, row, h, first + TOGETHER, tiles[(now + 1) % 2]);
            else if (h + 1 < H) fetch_tile(task, row, h + 1, 0, tiles[(now + 1) % 2]);
            for (int a = 0; a < TOGETHER && first + a < A; a++) {
                double chance[S], signals[1 + K], p[S];
                load<S>(chance, tile.pi + threadIdx.x * ROW_SIZE + a * S);
#pragma unroll
                for (int s = 0; s < S; s++) {
                    chance[s] = likely[s] * chance[s];
                    load<1 + K>(signals, tile.signals + (a * S + s) * (1 + K));
                    for (int c = 0; c <= K; c++) value[c] = FMA(chance[s], signals[c], value[c]);
                }
                if (h + 1 == H) continue;
#pragma unroll
                for (int s = 0; s < S; s++) {
                    load<S>(p, tile.P + (a * S + s) * S);
#pragma unroll
                    for (int j = 0; j < S; j++) next[j] = FMA(chance[s], p[j], next[j]);
                }
            }
        }
#pragma unroll
        for (int s = 0; s < S; s++) likely[s] = next[s];
    }
    __syncthreads();  // the tiles may be used again
    if (run >= task.runs) return;
    for (int c = 0; c <= K; c++) task.values[(row * (1 + K) + c) * task.runs + run] = value[c];
}

#endif

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

extern "C" __global__ void mix_worlds(const __grid_constant__ Task task) {
    const i64 thread = (i64)blockIdx.x * blockDim.x + threadIdx.x, all = (i64)gridDim.x * blockDim.x;
    for (i64 i = thread; i < task.episodes * (1 + K) * PAIRS; i += all) mix_signals(task, i);
    const i64 size = world_doubles(task.entries);
    for (i64 i = thread; i < task.rows * size; i += all) mix_transitions(task, i / size, i % size);
}

extern "C" __global__ void __launch_bounds__(THREADS, TILED ? 6 : 1) evaluate_policies(const __grid_constant__ Task task) {
    __shared__ __align__(16) Tile tiles[TILED ? 2 : 1];
    const i64 run = (i64)blockIdx.x * THREADS + threadIdx.x;
    for (i64 row = blockIdx.y; row < task.rows; row += gridDim.y) {
        if (TILED) evaluate_tiled(task, row, run, tiles);
        else if (run < task.runs) evaluate(task, row, run);
    }
}

extern "C" __global__ void accumulate_sums(const __grid_constant__ Task task) {
    const i64 run = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (run < task.runs) accumulate(task, run);
}

#else

extern "C" void mix_worlds(const Task *task) {
    for (i64 i = 0; i < task->episodes * (1 + K) * PAIRS; i++) mix_signals(*task, i);
    const i64 size = world_doubles(task->entries);
    for (i64 i = 0; i < task->rows * size; i++) mix_transitions(*task, i / size, i % size);
}

extern "C" void evaluate_policies(const Task *task) {
    for (i64 row = 0; row < task->rows; row++)
        for (i64 run = 0; run < task->runs; run++) evaluate(*task, row, run);
}

extern "C" void accumulate_sums(const Task *task) {
    for (i64 run = 0; run < task->runs; run++) accumulate(*task, run);
}

extern "C" i64 state_bytes() { return STATE_BYTES; }
extern "C" i64 hot_bytes() { return HOT_BYTES; }
extern "C" i64 world_size(i64 entries) { return world_doubles(entries); }

extern "C" void begin(const Task *task) {
    for (i64 run = 0; run < task->runs; run++)
        for (int lane = 0; lane < LANES; lane++) begin_on_host(task, run, lane);
}

static void play_lane(const Task *task, int lane) {
    for (i64 run = 0; run < task->runs; run++) play_on_host(task, run, lane);
}

extern "C" void play(const Task *task) {
#if LANES > 1
    std::barrier<> all(LANES + (BESIDE ? 2 * WARP : 0)), evaluating(LANES + (BESIDE ? WARP : 0));
    all_lanes = &all;
    evaluating_lanes = &evaluating;
    std::vector<std::thread> lanes;
    for (int lane = 0; lane < LANES + (BESIDE ? 2 * WARP : 0); lane++) lanes.emplace_back(play_lane, task, lane);
    for (auto &lane : lanes) lane.join();
#else
    play_lane(task, 0);
#endif
}

#endif
