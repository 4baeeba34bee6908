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

// Entry e of the transitions of a measured episode.
DEVICE void mix_transitions(const Task &task, i64 row, i64 e) {
    const i64 m = task.measured[row];
    const int *scenario = task.scenario_P + m * J_P;
    const double *weight = task.weight_P + m * J_P;
    double p = 0.0;
    for (int j = 0; j < J_P; j++)
        if (weight[j] > 0.0) p += weight[j] * task.probabilities[scenario[j] * task.entries + e];
    if (J_P == 1) p = task.probabilities[scenario[0] * task.entries + e];
    task.mixed_P[row * task.entries + e] = p;
}

// Item i of all signals of an episode of this launch, (episodes, 1+K, H, S, A).
DEVICE void mix_signals(const Task &task, i64 i) {
    const i64 e = i / ((1 + K) * PAIRS);
    const int j = (int)(i % ((1 + K) * PAIRS));
    task.mixed_signals[i] = mean_signal(task, task.first + e, j / PAIRS, j % PAIRS);
}

// ---------------------------------------------------------------- exact values

constexpr bool UNROLLED = DENSE && (1 + K) * S <= 48;  // V of two steps is in registers
constexpr int TOGETHER = 16 / S < 1 ? 1 : 16 / S < A ? 16 / S : A;  // actions read at once
constexpr int TILE = TOGETHER * S;
constexpr int AT_ONCE = UNROLLED ? S : 1;  // states in a row of code
constexpr int THREADS = 128;

#ifdef __CUDACC__
#define CHANCE(a, s) (UNROLLED ? tile[(((a) % TOGETHER) * S + (s)) * (THREADS + 1) + threadIdx.x] : own[(h * A + (a)) * S + (s)])
#else
#define CHANCE(a, s) own[(h * A + (a)) * S + (s)]
#endif

// V_r and V_g of the policy of a run in a measured episode. All threads of a block have the same
// episode, so they read the same numbers of the world; their policies come through a tile.
DEVICE void evaluate(const Task &task, i64 row, i64 run, double *tile) {
    double V[1 + K][S], total[1 + K][S];
    const double *p = task.mixed_P + row * task.entries;
    const double *signal = task.mixed_signals + (task.measured[row] - task.first) * (1 + K) * PAIRS;
    const double *policies = task.policies + row * task.runs * PAIRS, *own = policies + run * PAIRS;
    for (int h = H - 1; h >= 0; h--) {
#pragma unroll
        for (int i = 0; i < (1 + K) * S; i++) total[i / S][i % S] = 0.0;
        for (int group = 0; group < A; group += TOGETHER) {
#ifdef __CUDACC__
            if (UNROLLED) {
                __syncthreads();
                const i64 block = (i64)blockIdx.x * THREADS;
                for (int i = threadIdx.x; i < TILE * THREADS; i += THREADS) {
                    const int of = i / TILE, j = i % TILE;
                    if (block + of < task.runs && group * S + j < STEP)
                        tile[j * (THREADS + 1) + of] = policies[(block + of) * PAIRS + h * STEP + group * S + j];
                }
                __syncthreads();
            }
#endif
            for (int a = group; a < group + TOGETHER && a < A; a++) {
#pragma unroll AT_ONCE
                for (int s = 0; s < S; s++) {
                    const int pair = (h * S + s) * A + a;
                    double q[1 + K];
                    for (int c = 0; c <= K; c++) q[c] = signal[c * PAIRS + pair];
                    if (h + 1 < H) {
                        if (UNROLLED) {
#pragma unroll
                            for (int next = 0; next < S; next++) {
                                const double chance = p[(i64)pair * S + next];
                                for (int c = 0; c <= K; c++) q[c] = FMA(chance, V[c][next], q[c]);
                            }
                        } else {
                            for (i64 e = task.offsets[pair]; e < task.offsets[pair + 1]; e++)
                                for (int c = 0; c <= K; c++) q[c] = FMA(p[e], V[c][task.states[e]], q[c]);
                        }
                    }
                    const double chance = CHANCE(a, s);
                    for (int c = 0; c <= K; c++) total[c][s] = FMA(chance, q[c], total[c][s]);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < (1 + K) * S; i++) V[i / S][i % S] = total[i / S][i % S];
    }
    if (run >= task.runs) return;
    for (int c = 0; c <= K; c++) {
        double value = 0.0;
#pragma unroll AT_ONCE
        for (int s = 0; s < S; s++) value += task.initial_of_state[s] * V[c][s];
        task.values[(row * (1 + K) + c) * task.runs + run] = value;
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

extern "C" __global__ void mix_worlds(const __grid_constant__ Task task) {
    const i64 thread = (i64)blockIdx.x * blockDim.x + threadIdx.x, all = (i64)gridDim.x * blockDim.x;
    for (i64 i = thread; i < task.episodes * (1 + K) * PAIRS; i += all) mix_signals(task, i);
    for (i64 i = thread; i < task.rows * task.entries; i += all)
        mix_transitions(task, i / task.entries, i % task.entries);
}

extern "C" __global__ void __launch_bounds__(THREADS) evaluate_policies(const __grid_constant__ Task task) {
    __shared__ double tile[UNROLLED ? TILE * (THREADS + 1) : 1];
    const i64 run = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (!UNROLLED && run >= task.runs) return;
    for (i64 row = blockIdx.y; row < task.rows; row += gridDim.y) evaluate(task, row, run, tile);
}

extern "C" __global__ void accumulate_sums(const __grid_constant__ Task task) {
    const i64 run = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (run < task.runs) accumulate(task, run);
}

#else

extern "C" void mix_worlds(const Task *task) {
    for (i64 i = 0; i < task->episodes * (1 + K) * PAIRS; i++) mix_signals(*task, i);
    for (i64 i = 0; i < task->rows * task->entries; i++)
        mix_transitions(*task, i / task->entries, i % task->entries);
}

extern "C" void evaluate_policies(const Task *task) {
    for (i64 row = 0; row < task->rows; row++)
        for (i64 run = 0; run < task->runs; run++) evaluate(*task, row, run, nullptr);
}

extern "C" void accumulate_sums(const Task *task) {
    for (i64 run = 0; run < task->runs; run++) accumulate(*task, run);
}

#endif
