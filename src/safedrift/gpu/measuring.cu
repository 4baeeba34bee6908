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
DEVICE void mix_transitions(const Task &task, i64 row, i64 e) {
    task.mixed_P[row * task.entries + e] = transition(task, task.measured[row], e);
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

constexpr int THREADS = 128;

// V_r and V_g of the policy of a run in a measured episode.
DEVICE void evaluate(const Task &task, i64 row, i64 run) {
    double V[2][1 + K][S];
    const double *p = task.mixed_P + row * task.entries;
    const double *signal = task.mixed_signals + (task.measured[row] - task.first) * (1 + K) * PAIRS;
    const double *policy = task.policies + (row * task.runs + run) * PAIRS;
    for (int h = H - 1; h >= 0; h--) {
        for (int s = 0; s < S; s++) {
            double total[1 + K], q[1 + K];
            for (int c = 0; c <= K; c++) total[c] = 0.0;
            for (int a = 0; a < A; a++) {
                const int pair = (h * S + s) * A + a;
                for (int c = 0; c <= K; c++) q[c] = signal[((h * A + a) * S + s) * (1 + K) + c];
                if (h + 1 < H)
                    for (i64 e = task.offsets[pair]; e < task.offsets[pair + 1]; e++)
                        for (int c = 0; c <= K; c++)
                            q[c] = FMA(p[e], V[(h + 1) & 1][c][task.states[e]], q[c]);
                const double chance = policy[(h * A + a) * S + s];
                for (int c = 0; c <= K; c++) total[c] = FMA(chance, q[c], total[c]);
            }
            for (int c = 0; c <= K; c++) V[h & 1][c][s] = total[c];
        }
    }
    for (int c = 0; c <= K; c++) {
        double value = 0.0;
        for (int s = 0; s < S; s++) value += task.initial_of_state[s] * V[0][c][s];
        task.values[(row * (1 + K) + c) * task.runs + run] = value;
    }
}

#ifdef __CUDACC__

// The same sums for a block of runs, with V in registers: all threads have the same episode, and
// read P, signals and their policies from shared memory, a few actions of a step at a time.
constexpr bool TILED = DENSE && !FUSED && (1 + K) * S <= 48 && S <= 20;
constexpr int TOGETHER = 16 / S < 1 ? 1 : 16 / S < A ? 16 / S : A;  // actions
constexpr int ITEMS = TILED ? TOGETHER * S : 1;                     // pairs

struct Tile {
    double P[ITEMS * S];              // (actions, S, S next)
    double signals[(1 + K) * ITEMS];  // (1+K, actions, S)
    double pi[ITEMS * (THREADS + 1)]; // (actions, S, threads)
};

// Eight bytes on their way to shared memory, while the thread goes on.
DEVICE void fetch(double *to, const double *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from));
}

DEVICE void fetch_tile(const Task &task, i64 row, int h, int first, Tile &tile) {
    const double *p = task.mixed_P + row * task.entries;
    const double *signals = task.mixed_signals + (task.measured[row] - task.first) * (1 + K) * PAIRS;
    const i64 block = (i64)blockIdx.x * THREADS;
    const double *policies = task.policies + (row * task.runs + block) * PAIRS + h * STEP + first * S;
    const int pairs = (A - first < TOGETHER ? A - first : TOGETHER) * S;
    const int runs = (int)(task.runs - block < THREADS ? task.runs - block : THREADS);
    for (int i = threadIdx.x; i < pairs * S; i += THREADS) {
        const int next = i % S, s = i / S % S, a = first + i / (S * S);
        fetch(tile.P + i, p + (((i64)h * S + s) * A + a) * S + next);
    }
    for (int i = threadIdx.x; i < (1 + K) * pairs; i += THREADS) {
        const int c = i / pairs, j = i % pairs;
        fetch(tile.signals + c * ITEMS + j, signals + (h * STEP + first * S + j) * (1 + K) + c);
    }
    for (int i = threadIdx.x; i < ITEMS * runs; i += THREADS) {
        const int j = i % ITEMS;
        if (j < pairs) fetch(tile.pi + j * (THREADS + 1) + i / ITEMS, policies + (i64)(i / ITEMS) * PAIRS + j);
    }
    asm volatile("cp.async.commit_group;");
}

DEVICE void evaluate_tiled(const Task &task, i64 row, i64 run, Tile *tiles) {
    constexpr int PARTS = (A + TOGETHER - 1) / TOGETHER;  // of a step
    double V[1 + K][S], total[1 + K][S];
    fetch_tile(task, row, H - 1, 0, tiles[0]);
    for (int h = H - 1; h >= 0; h--) {
#pragma unroll
        for (int i = 0; i < (1 + K) * S; i++) total[i / S][i % S] = 0.0;
        for (int part = 0; part < PARTS; part++) {
            const int now = (H - 1 - h) * PARTS + part, first = part * TOGETHER;
            const Tile &tile = tiles[now % 2];
            asm volatile("cp.async.wait_group 0;" ::: "memory");
            __syncthreads();  // this tile is there, and nobody reads the other one any more
            if (part + 1 < PARTS) fetch_tile(task, row, h, first + TOGETHER, tiles[(now + 1) % 2]);
            else if (h > 0) fetch_tile(task, row, h - 1, 0, tiles[(now + 1) % 2]);
            for (int a = 0; a < TOGETHER && first + a < A; a++) {
#pragma unroll
                for (int s = 0; s < S; s++) {
                    const int j = a * S + s;
                    double q[1 + K];
                    for (int c = 0; c <= K; c++) q[c] = tile.signals[c * ITEMS + j];
                    if (h + 1 < H) {
#pragma unroll
                        for (int next = 0; next < S; next++)
                            for (int c = 0; c <= K; c++) q[c] = FMA(tile.P[j * S + next], V[c][next], q[c]);
                    }
                    const double chance = tile.pi[j * (THREADS + 1) + threadIdx.x];
                    for (int c = 0; c <= K; c++) total[c][s] = FMA(chance, q[c], total[c][s]);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < (1 + K) * S; i++) V[i / S][i % S] = total[i / S][i % S];
    }
    __syncthreads();  // the tiles may be used again
    if (run >= task.runs) return;
    for (int c = 0; c <= K; c++) {
        double value = 0.0;
#pragma unroll
        for (int s = 0; s < S; s++) value += task.initial_of_state[s] * V[c][s];
        task.values[(row * (1 + K) + c) * task.runs + run] = value;
    }
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

extern "C" __global__ void __launch_bounds__(THREADS) evaluate_policies(const __grid_constant__ Task task) {
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
