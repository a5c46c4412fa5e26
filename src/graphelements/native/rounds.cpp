// A round of message passing and its gradients, in blocks of nodes that stay in the cache.
//
//   s_j = sum over edges e = (i, j) of relu(A h_i + B h_j + b1 + C c_e)        u_j = p_j W2 s_j + q_j b2
//   v_j = relu(U [h_j, u_j] + b3)                                               h'_j = V v_j + b4 (+ h_j)
//
// All of it is done for one group of nodes after the other; no edge joins two groups. Nothing of size edges x hidden is ever
// stored, and of a forward pass nothing is kept. There are no atomic additions, and threads share nodes in one order: with the
// same number of threads the same input gives the same bits.

#include "matrices.h"

#include <atomic>

namespace {

constexpr int WIDE = 3;  // vectors of a row that go through the edges of a node together

// The edges of every node, from `starts` of one to that of the next: the node at the other end, and the number of the edge.
struct Edges {
    const int32_t *starts, *others, *numbers;
};

// [A, B, C], W2, U, V and their biases, outputs x inputs, as torch has them.
template <class T> struct Weights {
    const T *first, *first_bias, *last, *last_bias, *update, *update_bias, *output, *output_bias;
};

template <class T> struct Round {
    int64_t num_groups, latent, message, edge_hidden, node_hidden, num_features;
    const int32_t* groups;  // where they begin, and where the last one ends
    Edges in, out;
    const T *features;  // edges x features
    const T *p, *q;     // p may be missing, and is one then
    Weights<T> weights;

    int64_t width() const { return 2 * edge_hidden; }
    int64_t seen() const { return latent + message; }
    int64_t first_inputs() const { return 2 * latent + num_features; }

    // The weights as products with rows of inputs take them, inputs x outputs: A and B side by side, with b1 for B, C, W2, U and
    // V; and A above B, outputs x inputs.
    struct Turned {
        Buffer<T> room;
        T *nodes, *nodes_bias, *edge, *last, *update, *output, *stacked;

        explicit Turned(const Round& r)
            : room(
                  2 * r.width() * r.latent + r.width() + r.num_features * r.edge_hidden + r.edge_hidden * r.message +
                  r.seen() * r.node_hidden + r.node_hidden * r.latent) {
            const Weights<T>& w = r.weights;
            int64_t inputs = r.first_inputs(), hidden = r.edge_hidden;
            nodes = room.at, nodes_bias = nodes + r.latent * r.width(), edge = nodes_bias + r.width();
            last = edge + r.num_features * hidden, update = last + hidden * r.message;
            output = update + r.seen() * r.node_hidden, stacked = output + r.node_hidden * r.latent;
            for (int part = 0; part < 2; part++) {
                const T* from = w.first + part * r.latent;
                turn({nodes + part * hidden, r.width()}, {from, inputs}, hidden, r.latent);
                for (int64_t o = 0; o < hidden; o++) {
                    std::copy_n(from + o * inputs, r.latent, stacked + (part * hidden + o) * r.latent);
                    nodes_bias[part * hidden + o] = part ? w.first_bias[o] : 0;
                }
            }
            turn({edge, hidden}, {w.first + 2 * r.latent, inputs}, hidden, r.num_features);
            turn({last, r.message}, {w.last, hidden}, r.message, hidden);
            turn({update, r.node_hidden}, {w.update, r.seen()}, r.node_hidden, r.seen());
            turn({output, r.latent}, {w.output, r.node_hidden}, r.latent, r.node_hidden);
        }

        static void turn(Matrix<T> to, Matrix<const T> from, int64_t rows, int64_t columns) {
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < columns; c++) to.at[c * to.row + r] = from.at[r * from.row + c];
        }
    };

    // What is added on an edge: so many numbers from the column `first` on of A h_i or B h_j, what the other end has, and C c_e.
    template <int C, class Columns>
    void terms(
        Vec<T>* total, const T* other, const Vec<T>* own, const T* of_edge, int64_t edge, int64_t first, Columns count
    ) const {
        for (int c = 0; c < C; c++) total[c] = load(other + first + c * LANES<T>, count - c * LANES<T>) + own[c];
        for (int64_t f = 0; f < num_features; f++) {
            T feature = features[edge * num_features + f];
            const T* weight = of_edge + f * edge_hidden + first;
            for (int c = 0; c < C; c++) total[c] += feature * load(weight + c * LANES<T>, count - c * LANES<T>);
        }
    }

    // s of some nodes, in rows from that of `begin` on. `nodes` has A h and B h + b1 of all nodes of the group, the first of
    // which is `origin`.
    void sum_terms(T* sums, const T* nodes, const T* of_edge, int64_t origin, int64_t begin, int64_t end) const {
        in_pieces<T, WIDE>(edge_hidden, [&](int64_t first, auto count, auto vectors) {
            constexpr int C = decltype(vectors)::value;
            int64_t width = this->width();
            for (int64_t j = begin; j < end; j++) {
                Vec<T> own[C], sum[C] = {}, total[C];
                const T* here = nodes + (j - origin) * width + edge_hidden + first;
                for (int c = 0; c < C; c++) own[c] = load(here + c * LANES<T>, count - c * LANES<T>);
                for (int64_t e = in.starts[j]; e < in.starts[j + 1]; e++) {
                    terms<C>(total, nodes + (in.others[e] - origin) * width, own, of_edge, in.numbers[e], first, count);
                    for (int c = 0; c < C; c++) sum[c] += Relu()(total[c], 0, 0);
                }
                T* to = sums + (j - begin) * edge_hidden + first;
                for (int c = 0; c < C; c++) store(to + c * LANES<T>, sum[c], count - c * LANES<T>);
            }
        });
    }

    // The gradient of `nodes`, in rows from that of `begin` on; of edge features and of their weight, where they are asked for.
    // `by_sums` has the gradient of s of all nodes of the group.
    void term_gradients(
        T* by_nodes, T* by_features, T* by_edge, const T* by_sums, const T* nodes, const T* of_edge, int64_t origin,
        int64_t begin, int64_t end
    ) const {
        in_pieces<T, WIDE>(edge_hidden, [&](int64_t first, auto count, auto vectors) {
            constexpr int C = decltype(vectors)::value;
            int64_t width = this->width();
            for (int64_t j = begin; j < end; j++) {  // what is sent
                Vec<T> sent[C], by_sent[C] = {}, total[C];
                const T* here = nodes + (j - origin) * width + first;
                for (int c = 0; c < C; c++) sent[c] = load(here + c * LANES<T>, count - c * LANES<T>);
                for (int64_t e = out.starts[j]; e < out.starts[j + 1]; e++) {
                    int64_t other = out.others[e] - origin;
                    const T* passed = by_sums + other * edge_hidden + first;
                    terms<C>(total, nodes + other * width + edge_hidden, sent, of_edge, out.numbers[e], first, count);
                    for (int c = 0; c < C; c++)
                        by_sent[c] += total[c] <= 0 ? Vec<T>{} : load(passed + c * LANES<T>, count - c * LANES<T>);
                }
                T* to = by_nodes + (j - begin) * width + first;
                for (int c = 0; c < C; c++) store(to + c * LANES<T>, by_sent[c], count - c * LANES<T>);
            }
            for (int64_t j = begin; j < end; j++) {  // what is heard
                Vec<T> heard[C], gradient[C], by_heard[C] = {}, total[C];
                const T *here = nodes + (j - origin) * width + edge_hidden + first;
                const T *by_here = by_sums + (j - origin) * edge_hidden + first;
                for (int c = 0; c < C; c++) {
                    heard[c] = load(here + c * LANES<T>, count - c * LANES<T>);
                    gradient[c] = load(by_here + c * LANES<T>, count - c * LANES<T>);
                }
                for (int64_t e = in.starts[j]; e < in.starts[j + 1]; e++) {
                    int64_t edge = in.numbers[e];
                    terms<C>(total, nodes + (in.others[e] - origin) * width, heard, of_edge, edge, first, count);
                    for (int c = 0; c < C; c++) total[c] = total[c] <= 0 ? Vec<T>{} : gradient[c];
                    for (int c = 0; c < C; c++) by_heard[c] += total[c];
                    for (int64_t f = 0; by_edge && f < num_features; f++) {
                        T feature = features[edge * num_features + f], *to = by_edge + f * edge_hidden + first;
                        for (int c = 0; c < C; c++) {
                            int64_t left = count - c * LANES<T>;
                            store(to + c * LANES<T>, load(to + c * LANES<T>, left) + feature * total[c], left);
                        }
                    }
                    for (int64_t f = 0; by_features && f < num_features; f++) {
                        const T* weight = of_edge + f * edge_hidden + first;
                        Vec<T> sum = {};
                        for (int c = 0; c < C; c++) sum += total[c] * load(weight + c * LANES<T>, count - c * LANES<T>);
                        for (int lane = 0; lane < LANES<T>; lane++) by_features[edge * num_features + f] += sum[lane];
                    }
                }
                T* to = by_nodes + (j - begin) * width + edge_hidden + first;
                for (int c = 0; c < C; c++) store(to + c * LANES<T>, by_heard[c], count - c * LANES<T>);
            }
        });
    }

    // A h and B h + b1 of some nodes.
    void project(T* nodes, const T* states, const Turned& turned, int64_t origin, int64_t begin, int64_t end) const {
        Matrix<T> to{nodes + (begin - origin) * width(), width()};
        Matrix<const T> h{states + begin * latent, latent};
        product<T>(to, {turned.nodes_bias, 0}, h, {turned.nodes, width()}, end - begin, latent, width());
    }

    // s, [h, u] and v of the nodes of a block.
    struct Block {
        Matrix<T> s, x, v;
    };
    Block block(T* room) const {
        T *x = room + BLOCK * edge_hidden, *v = x + BLOCK * seen();
        return {{room, edge_hidden}, {x, seen()}, {v, node_hidden}};
    }
    int64_t block_size() const { return BLOCK * (edge_hidden + seen() + node_hidden); }

    void update(
        const Block& here, const T* nodes, const T* states, const Turned& turned, int64_t origin, int64_t begin, int64_t end
    ) const {
        auto [s, x, v] = here;
        int64_t rows = end - begin;
        sum_terms(s.at, nodes, turned.edge, origin, begin, end);
        product<T>(x.right(latent), {}, s, {turned.last, message}, rows, edge_hidden, message);
        for (int64_t r = 0; r < rows; r++) {
            T *h = x.at + r * seen(), *u = h + latent, of_sum = p ? p[begin + r] : 1, of_bias = q[begin + r];
            std::copy_n(states + (begin + r) * latent, latent, h);
            for (int64_t c = 0; c < message; c++) u[c] = of_sum * u[c] + of_bias * weights.last_bias[c];
        }
        product<T>(v, {weights.update_bias, 0}, x, {turned.update, node_hidden}, rows, seen(), node_hidden, Relu());
    }

    // Calls `each(share)` for so many shares, each by one thread; that memory was too little is told when all have ended.
    template <class Each> static void in_shares(int shares, Each each) {
        std::atomic<bool> failed{false};
#pragma omp parallel for num_threads(shares) schedule(static, 1) if (shares > 1)
        for (int share = 0; share < shares; share++) {
            try {  // no exception may leave a thread
                each(share);
            } catch (const std::bad_alloc&) {
                failed = true;
            }
        }
        if (failed) throw std::bad_alloc();
    }

    // Calls `each(begin, end, number)` for blocks of nodes, numbered by the thread that does them, from `first` on.
    template <class Each> static void in_blocks(int64_t begin, int64_t end, int first, int threads, Each each) {
        int64_t blocks = (end - begin + BLOCK - 1) / BLOCK;
        in_shares(threads, [&](int share) {
            for (int64_t b = blocks * share / threads; b < blocks * (share + 1) / threads; b++)
                each(begin + b * BLOCK, std::min(end, begin + (b + 1) * BLOCK), first + share);
        });
    }

    // Calls `each(begin, end, room, number, threads)` for groups of nodes: many or small groups are shared among threads, of few
    // large ones every one is. `room` is for that many numbers a node.
    template <class Each> void in_groups(int threads, int64_t room, Each each) const {
        int64_t most = 0;
        for (int64_t g = 0; g < num_groups; g++) most = std::max<int64_t>(most, groups[g + 1] - groups[g]);
        bool many = num_groups >= threads || (num_groups > 1 && most <= 4 * BLOCK);
        int together = many ? int(std::min<int64_t>(threads, num_groups)) : 1;
        Buffer<T> rooms(together * most * room);
        in_shares(together, [&](int share) {
            for (int64_t g = num_groups * share / together; g < num_groups * (share + 1) / together; g++)
                each(groups[g], groups[g + 1], rooms.at + share * most * room, share, many ? 1 : threads);
        });
    }

    void forward(int threads, bool residual, T* result, const T* states) const {
        Turned turned(*this);
        Buffer<T> blocks(threads * block_size());
        in_groups(threads, width(), [&](int64_t origin, int64_t limit, T* nodes, int first, int inside) {
            in_blocks(origin, limit, first, inside, [&](int64_t begin, int64_t end, int) {
                project(nodes, states, turned, origin, begin, end);
            });
            in_blocks(origin, limit, first, inside, [&](int64_t begin, int64_t end, int number) {
                Block here = block(blocks.at + number * block_size());
                Matrix<T> to{result + begin * latent, latent};
                update(here, nodes, states, turned, origin, begin, end);
                product<T>(to, {weights.output_bias, 0}, here.v, {turned.output, latent}, end - begin, node_hidden, latent);
                for (int64_t i = begin * latent; residual && i < end * latent; i++) result[i] += states[i];
            });
        });
    }

    // The gradients of the weights go to `by_weights`, one after the other, in the order and form in which weights are given.
    void backward(
        int threads, bool residual, bool edges_learn, T* by_states, T* by_features, T* by_weights, const T* gradient,
        const T* states
    ) const {
        int64_t of_block = block_size() + BLOCK * (seen() + node_hidden + width()), inputs = first_inputs();
        int64_t num_weights = 0, starts[9], sizes[] = {
            edge_hidden * inputs, edge_hidden, message * edge_hidden, message, node_hidden * seen(), node_hidden,
            latent * node_hidden, latent};
        for (int i = 0; i < 8; i++) starts[i] = num_weights, num_weights += sizes[i];
        starts[8] = num_weights;  // of C, inputs x outputs
        int64_t of_share = num_weights + num_features * edge_hidden;
        Turned turned(*this);
        Buffer<T> shares(threads * of_share), blocks(threads * of_block);
        std::fill(shares.at, shares.at + threads * of_share, T(0));
        in_groups(threads, width() + edge_hidden, [&](int64_t origin, int64_t limit, T* nodes, int first, int inside) {
            T* by_sums = nodes + (limit - origin) * width();
            in_blocks(origin, limit, first, inside, [&](int64_t begin, int64_t end, int) {
                project(nodes, states, turned, origin, begin, end);
            });
            in_blocks(origin, limit, first, inside, [&](int64_t begin, int64_t end, int number) {
                int64_t rows = end - begin, seen = this->seen();
                T *by = shares.at + number * of_share, *room = blocks.at + number * of_block;
                Block here = block(room);
                auto [s, x, v] = here;
                Matrix<T> by_x{room + block_size(), seen}, by_v{by_x.at + BLOCK * seen, node_hidden}, by_u = by_x.right(latent);
                Matrix<T> by_s{by_sums + (begin - origin) * edge_hidden, edge_hidden};
                Matrix<const T> g{gradient + begin * latent, latent};
                auto add_product = [&](T* to, Matrix<const T> a, Matrix<const T> b, int64_t outputs, int64_t inputs) {
                    product<T>({to, inputs}, {to, inputs}, a.turned(), b, outputs, rows, inputs);
                };
                update(here, nodes, states, turned, origin, begin, end);
                add_product(by + starts[6], g, v, latent, node_hidden);
                add_columns(by + starts[7], g, rows, latent);
                auto passed = [v = v.at](Vec<T> x, int64_t at, int64_t left) { return load(v + at, left) <= 0 ? Vec<T>{} : x; };
                product<T>(by_v, {}, g, {weights.output, node_hidden}, rows, latent, node_hidden, passed);
                add_product(by + starts[4], by_v, x, node_hidden, seen);
                add_columns<T>(by + starts[5], by_v, rows, node_hidden);
                product<T>(by_x, {}, by_v, {weights.update, seen}, rows, node_hidden, seen);
                for (int64_t r = 0; r < rows; r++) {
                    T *by_h = by_x.at + r * seen, *by_here = by_h + latent, *to = by_states + (begin + r) * latent;
                    for (int64_t c = 0; c < latent; c++) to[c] = residual ? by_h[c] + g.at[r * latent + c] : by_h[c];
                    for (int64_t c = 0; c < message; c++) by[starts[3] + c] += q[begin + r] * by_here[c];
                    for (int64_t c = 0; p && c < message; c++) by_here[c] *= p[begin + r];
                }
                add_product(by + starts[2], by_u, s, message, edge_hidden);
                product<T>(by_s, {}, by_u, {weights.last, edge_hidden}, rows, message, edge_hidden);
            });
            in_blocks(origin, limit, first, inside, [&](int64_t begin, int64_t end, int number) {
                int64_t rows = end - begin;
                T *by = shares.at + number * of_share, *by_nodes = blocks.at + (number + 1) * of_block - BLOCK * width();
                Matrix<const T> h{states + begin * latent, latent}, by_n{by_nodes, width()};
                Matrix<T> to{by_states + begin * latent, latent}, by_first{by, inputs};
                T* by_edge = edges_learn ? by + starts[8] : nullptr;
                term_gradients(by_nodes, by_features, by_edge, by_sums, nodes, turned.edge, origin, begin, end);
                product<T>(to, to, by_n, {turned.stacked, latent}, rows, width(), latent);
                for (int part = 0; part < 2; part++) {
                    Matrix<T> by_part = by_first.right(part * latent);
                    Matrix<const T> by_rows = by_n.right(part * edge_hidden);
                    product<T>(by_part, by_part, by_rows.turned(), h, edge_hidden, rows, latent);
                }
                add_columns(by + starts[1], by_n.right(edge_hidden), rows, edge_hidden);
            });
        });
        for (int share = 1; share < threads; share++)
            for (int64_t i = 0; i < of_share; i++) shares.at[i] += shares.at[share * of_share + i];
        std::copy_n(shares.at, num_weights, by_weights);
        Turned::turn({by_weights + 2 * latent, inputs}, {shares.at + starts[8], edge_hidden}, num_features, edge_hidden);
    }
};

}  // namespace

// 0 if there was enough memory.
template <class Run> int guarded(Run run) {
    try {
        run();
        return 0;
    } catch (const std::bad_alloc&) {
        return 1;
    }
}

#define EXPORT(T, NAME)                                                                                                        \
    extern "C" int NAME##_forward(const Round<T>* round, int threads, int residual, T* result, const T* states) {              \
        return guarded([=] { round->forward(threads, residual, result, states); });                                            \
    }                                                                                                                          \
    extern "C" int NAME##_backward(                                                                                            \
        const Round<T>* round, int threads, int residual, int edges_learn, T* by_states, T* by_features, T* by_weights,        \
        const T* gradient, const T* states) {                                                                                  \
        return guarded([=] {                                                                                                   \
            round->backward(threads, residual, edges_learn, by_states, by_features, by_weights, gradient, states);             \
        });                                                                                                                    \
    }

EXPORT(float, round_float32)
EXPORT(double, round_float64)
