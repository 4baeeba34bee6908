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
    const double *ahead = x.v + ((h + 1) & 1) * C * S;
    for (int c = 0; c < C; c++) total[c] = 0.0;
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

// Estimates of all channels at one pair of step h: Alg. 3, lines 3 to 8.
DEVICE void estimate(const State &x, int h, int i, const double *lv, const Setting &own) {
    const int p = h * STEP + i;
    const double most = (double)(H - h);
    const COUNT visits = x.visits[p];
    double *found = x.x + h % BUFFERS * C * STEP + i;
    if (LISTED && BERNSTEIN && visits == 0) {
        for (int c = 0; c < C; c++) found[c * STEP] = most;
        return;
    }
    const double n = (double)visits, weight = x.weight[p], bonus = x.bonus[p];
    double sums[1 + K], total[C], square[1 + K];
    for (int c = 0; c <= K; c++) sums[c] = x.sums[c * PAIRS + p];
    for (int c = 0; c < C; c++) total[c] = 0.0;
    for (int c = 0; c <= K; c++) square[c] = 0.0;
    if (h + 1 < H && (!LISTED || visits > 0))
        look_ahead(x, h, i, n, BERNSTEIN ? bonus : 0.0, total, square);
    for (int c = 0; c < C; c++) {
        double y = (sums[c <= K ? c : c - K] + total[c]) * weight;
        if (c <= K) {
            double more = bonus;
            if (BERNSTEIN) {
                more = own.scale * FMA(own.scale, most, deviation_of(square[c]));
                more = FMA(more, bonus, own.lam * weight);
            }
            y = y + (HAS_LV && c > 0 ? more + lv[(c - 1) * H + h] : more);
        }
        y = y < most ? y : most;
        y = y > 0.0 ? y : 0.0;
        if (visits == 0 && (BERNSTEIN || c > K)) y = most;
        found[c * STEP] = y;
    }
}

// V of channel c at (h, s): the average of its estimates over the policy.
DEVICE void average(const State &x, int h, int i) {
    const int c = i / S, s = i % S;
    const double *pi = x.pi + h * STEP + s, *found = x.x + (h % BUFFERS * C + c) * STEP + s;
    double value = 0.0;
    for (int a = 0; a < A; a++) value = FMA(pi[a * S], found[a * S], value);
    x.v[(h & 1) * C * S + i] = value;
}

// log pi_{m+1} = log pi_m + alpha (Q_r + mu Q_g) at one pair, relative to action 0, in two floats.
DEVICE void improve(const State &x, int h, int i, double alpha) {
    const int p = h * STEP + i, s = i % S;
    if (LISTED && !x.seen[h * S + s]) return;
    const double *q = x.x + h % BUFFERS * C * STEP;
    double step = (q[i] - q[s]) + x.mu[0] * (q[STEP + i] - q[STEP + s]);
    for (int k = 1; k < K; k++)
        step += x.mu[k] * (q[(1 + k) * STEP + i] - q[(1 + k) * STEP + s]);
    double old = x.logit[p];
    double add = alpha * step + (double)x.low[p];
    double sum = old + add;
    double back = sum - old;
    x.low[p] = (float)((old - (sum - back)) + (add - back));
    x.logit[p] = sum;
}

// Ask for what the next step needs of main memory.
DEVICE void prefetch(const State &x, int p) {
    PREFETCH(x.weight + p);
    PREFETCH(x.bonus + p);
    PREFETCH(x.logit + p);
    PREFETCH(x.low + p);
    for (int c = 0; c <= K; c++) PREFETCH(x.sums + c * PAIRS + p);
}

// pi from its logarithms at one (h, s); where the window has no visits it has not changed.
DEVICE void normalise(const State &x, int i) {
    if (!x.seen[i]) return;
    const int first = (i / S) * STEP + i % S;
    double top = 0.0, total = 0.0, y[A];
    for (int a = 1; a < A; a++) {
        y[a] = x.logit[first + a * S];
        top = top < y[a] ? y[a] : top;
    }
    for (int a = 0; a < A; a++) {
        y[a] = exponential(a > 0 ? (y[a] - top) + (double)x.low[first + a * S] : -top);
        total = total + y[a];
    }
    total = 1.0 / total;
    for (int a = 0; a < A; a++) x.pi[first + a * S] = y[a] * total;
}

// ---------------------------------------------------------------- Algorithm 1

DEVICE void play_run(const Task &task, i64 run, int lane, const State &x) {
    const Setting own = setting_of(task, task.setting[run]);
    i64 window_age = task.first % own.W, policy_age = task.first % own.L;
    for (int e = 0; e < (int)task.episodes; e++) {  // Alg. 1, line 2
        const i64 m = task.first + e;
        const bool opens = window_age == 0, restarts = policy_age == 0;
        window_age = window_age + 1 == own.W ? 0 : window_age + 1;
        policy_age = policy_age + 1 == own.L ? 0 : policy_age + 1;
        // Forget, and draw this episode's uniforms.
        if (opens) {  // Alg. 1, line 3: no data yet
            EACH(p, PAIRS) {
                x.visits[p] = 0;
                x.weight[p] = 1.0 / own.lam;
                x.bonus[p] = bonus_of_count(p / STEP, 0.0, own);
                for (int c = 0; c <= K; c++) x.sums[c * PAIRS + p] = 0.0;
            }
            EACH(i, H * S) x.seen[i] = 0;
            EACH(j, (H - 1) * S * STEP) x.moves[j] = 0;
            if (LISTED) EACH(j, (H - 1) * MARKS * STEP) x.marks[j] = 0;
        }
        if (restarts) {  // Alg. 1, lines 4 and 5
            EACH(p, PAIRS) {
                x.logit[p] = 0.0;
                x.low[p] = 0.0f;
                x.pi[p] = 1.0 / A;
            }
        }
        EACH(j, DRAWS) {
            const int stream = j < H ? 0 : 1;
            x.u[j] = uniform(x.generator + 2 * j);
            jump(x.generator + 2 * j, JUMP[4 * stream], JUMP[4 * stream + 1], x.increment + 2 * stream);
        }
        BARRIER;
        // Act; the policy is written down meanwhile.
        const int row = task.row[e];
        if (row >= 0) {
            double *out = task.policies + ((i64)row * task.runs + run) * PAIRS;
            EACH(p, PAIRS) out[p] = x.pi[p];
        }
        if (AHEAD) {
            EACH(i, H * S) x.choice[i] = choose(task, m, x, i / S, i % S);
            BARRIER;
        }
        if (lane == 0) {
            if (opens) x.window[0] += 1;
            int s = first_state(task, x.u[H]);
            for (int h = 0; h < H; h++) {
                const int both = AHEAD ? x.choice[h * S + s] : choose(task, m, x, h, s);
                x.s[h] = s;
                x.a[h] = both & 0xffff;
                s = both >> 16;
            }
        }
        BARRIER;
        EACH(j, SIGNALS) {
            const int c = j / H, h = j % H;
            const double *means = task.mixed_signals + ((i64)e * (1 + K) + c) * PAIRS;
            double mean = means[(h * S + x.s[h]) * A + x.a[h]];
            if (NOISY) mean = x.u[2 * H + h * (1 + K) + c] < mean ? 1.0 : 0.0;
            x.signals[j] = mean;
        }
        EACH(k, K) {  // Alg. 1, line 12
            double mu = x.mu[k], now = task.thresholds[m * K + k];
            double b = own.lagged ? x.last_b[k] : now;
            mu = mu + own.eta * (b - x.dual[k] - own.xi * mu);
            mu = mu > 0.0 ? mu : 0.0;
            x.mu[k] = mu < own.chi ? mu : own.chi;
            x.last_b[k] = now;
        }
        BARRIER;
        // Evaluate, and step towards the next policy (Alg. 1, line 13; Alg. 3; Alg. 1, line 8).
        const bool improves = policy_age != 0;  // else the next policy is uniform
        const i64 window = x.window[0] < own.windows ? x.window[0] : own.windows - 1;
        const double *lv = own.LV + window * K * H;
        for (int h = H - 1; h >= 0; h--) {
            if (SHARED_STATE < 2 && h > 0) EACH(i, STEP) prefetch(x, (h - 1) * STEP + i);
            EACH(i, STEP) estimate(x, h, i, lv, own);
            BARRIER;
            EACH(i, C * S) average(x, h, i);
            if (BUFFERS > 1) BARRIER;
            if (improves) EACH(i, STEP - S) improve(x, h, S + i, own.alpha);
            if (BUFFERS == 1) BARRIER;
        }
        if (own.dual_signal != OBSERVED || task.log_v) {
            EACH(c, C) {  // Alg. 3, line 10
                double value = 0.0;
                for (int s = 0; s < S; s++) value += task.initial_of_state[s] * x.v[c * S + s];
                const int used = own.dual_signal == PLAIN ? 1 + K : 1;
                if (own.dual_signal != OBSERVED && c >= used && c < used + K) x.dual[c - used] = value;
                if (task.log_v) task.log_v[(run * task.episodes + e) * C + c] = value;
            }
        }
        BARRIER;
        if (own.dual_signal == OBSERVED) {
            EACH(k, K) {
                double total = 0.0;
                for (int h = 0; h < H; h++) total += x.signals[(1 + k) * H + h];
                x.dual[k] = total;
            }
        }
        if (improves) EACH(i, H * S) normalise(x, i);
        BARRIER;
        EACH(h, H) {  // the episode enters the window
            const int s = x.s[h], a = x.a[h], i = a * S + s, p = h * STEP + i;
            const COUNT n = ++x.visits[p];
            x.weight[p] = 1.0 / ((double)n + own.lam);
            x.bonus[p] = bonus_of_count(h, (double)n, own);
            x.seen[h * S + s] = 1;
            for (int c = 0; c <= K; c++) x.sums[c * PAIRS + p] += x.signals[c * H + h];
            if (h + 1 < H) {
                const int next = x.s[h + 1];
                x.moves[((i64)h * S + next) * STEP + i] += 1;
                if (LISTED) x.marks[(h * MARKS + next / 32) * STEP + i] |= 1u << next % 32;
            }
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

extern "C" __global__ void __launch_bounds__(LANES * RUNS, BLOCKS) play(const __grid_constant__ Task task) {
    // Whole groups leave; within a warp they stay together, and play the last run once more.
    i64 run = (i64)blockIdx.x * RUNS + threadIdx.x / LANES;
    if (LANES >= 32 && run >= task.runs) return;
    run = run < task.runs ? run : task.runs - 1;
    const int lane = threadIdx.x % LANES;
    char *own = task.memory + run * STATE_BYTES;
    if (SHARED_STATE == 0) {
        play_run(task, run, lane, state_at(own, own + HOT_BYTES));
        return;
    }
    const i64 size = SHARED_STATE == 2 ? STATE_BYTES : HOT_BYTES;
    u64 *here = shared_memory + threadIdx.x / LANES * (size / 8);
    for (int i = lane; i < size / 8; i += LANES) here[i] = ((u64 *)own)[i];
    BARRIER;
    char *hot = (char *)here;
    if (SHARED_STATE == 2) play_run(task, run, lane, state_at(hot, hot + HOT_BYTES));
    else play_run(task, run, lane, state_at(hot, own + HOT_BYTES));
    for (int i = lane; i < size / 8; i += LANES) ((u64 *)own)[i] = here[i];
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
